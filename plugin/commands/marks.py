"""`kubectl vmherd protect`, `unprotect`, `busy` and `remove`: which VMs stay, and which leave first."""

from asyncio import sleep
from collections import Counter
from datetime import timedelta

import click

from controller.apimachinery.conditions import time_text
from informers.errors import NotFound
from informers.objects import read_meta
from plugin import clock
from plugin.command import on_members, on_objects
from plugin.connection import Session
from plugin.flags import CLIENT, NONE
from plugin.members import MemberName, parse_members, read_member, subject_of
from plugin.printing import note
from plugin.reading import Reader
from plugin.views.membership import Item, busy_edits, protect_edits, remove_edits
from plugin.writing import write, write_replicas

LEAVING_LOOKS, LOOK_S = 20, 0.5
"""The number of looks at the marked members after the scale-in, and the pause between two looks in seconds."""


@on_members("protect")
async def protect(session: Session, item: Item) -> None:
    """Keep VMs at every scale-in. The annotation is vmherd.dev/protect on the VM."""
    await write(session, item, protect_edits(item, protected=True), "protected")


@on_members("unprotect")
async def unprotect(session: Session, item: Item) -> None:
    """End the protection of VMs."""
    await write(session, item, protect_edits(item, protected=False), "unprotected")


@on_members("busy")
async def busy(session: Session, item: Item, for_s: float | None, clear: bool) -> None:
    """Leave VMs alone while they work. The annotation is vmherd.dev/busy-until on the VM or VMI."""
    if clear == (for_s is not None):
        raise click.UsageError("say how long with --for, such as --for 2h, or end the mark with --clear")
    until = clock.now() + timedelta(seconds=for_s) if for_s is not None else None
    done = f"is busy until {time_text(until)}" if until is not None else "is not busy"
    await write(session, item, busy_edits(item, until), done)


@on_objects("remove", metavar="VM...", parse=parse_members)
async def remove(session: Session, members: tuple[MemberName, ...], scale_in: bool, undo: bool) -> None:
    """Mark VMs as the first to leave at a scale-in. With --scale-in, they leave now: all of them, or none."""
    if scale_in and undo:
        raise click.UsageError("--scale-in and --undo contradict each other")
    done = "no longer marked for removal" if undo else "marked for removal"
    if not scale_in:
        for member in dict.fromkeys(members):
            with session.going_on():
                item = await read_member(session, member)
                await write(session, item, remove_edits(item, on=not undo), done)
        if not undo and not session.flags.output and len(session.failures) < len(members):
            note("Note: it leaves first when its pool or set is scaled in; --scale-in does this now.")
        return
    items = [await read_member(session, member) for member in dict.fromkeys(members)]
    changes = [(item, remove_edits(item, on=True)) for item in items]
    for item, edits in changes:
        await write(session, item, edits, done)
    await _scale_in(session, items)  # the controller compares its cache with the marks before a scale-in (R9)
    if session.flags.dry_run == NONE:
        await _see_leaving(session, items)


async def _scale_in(session: Session, items: list[Item]) -> None:
    """Reduce the replicas of each owner by the number of its marked members. Raise Failed, ApiError.

    The version of the owner keeps two people from counting down at the same time.
    """
    reader = Reader(session, session.namespace)
    for owner, number in Counter(map(subject_of, items)).items():
        target = await reader.target(owner)
        replicas = max(target.wanted - number, 0)
        if session.flags.dry_run != CLIENT:
            await write_replicas(session, target, replicas, is_exact=True)
        if not session.flags.output:
            print(f"{target.path} scaled to {replicas}{session.flags.dry_run_suffix}")


async def _see_leaving(session: Session, items: list[Item]) -> None:
    """Wait until all marked members go, and name those that stay. One may stay for a good reason, such as a pause."""
    staying = items
    for look in range(LEAVING_LOOKS):
        if look:
            await sleep(LOOK_S)
        staying = [item for item in staying if not await _is_leaving(session, item)]
        if not staying:
            return
    names = ", ".join(item.path for item in staying)
    note(f"Warning: not leaving yet: {names}. kubectl vmherd why shows what the pool or set waits for.")


async def _is_leaving(session: Session, item: Item) -> bool:
    """Return True if the object is gone or being deleted, or if another object has its name now."""
    try:
        answer = await session.request("GET", item.resource.path(*item.key))
    except NotFound:
        return True
    meta = read_meta(answer)
    return meta.deletion_timestamp is not None or meta.uid != item.meta.uid
