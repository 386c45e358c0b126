"""`kubectl vmherd protect`, `unprotect` and `remove`: which VMs stay, and which leave first."""

from __future__ import annotations

from asyncio import sleep
from collections import Counter
from collections.abc import Callable
from typing import Any

import click
import msgspec

from controller.kinds import Kind
from informers.objects import PatchType
from plugin.connection import Failed, Session, carry_out
from plugin.flags import CLIENT, NONE, Verb, flags_of
from plugin.members import METAVAR, Item, MemberName, parse_members, read_member
from plugin.printing import note
from plugin.reading import Reader, Target
from plugin.subjects import Subject
from plugin.verbs import FLAGS
from plugin.views.edits import Edit
from plugin.views.membership import controller, owner_kind, protect_edits, remove_edits
from plugin.views.steering import Refused
from plugin.writing import params_of, write

Edits = Callable[[Item], tuple[Edit, ...]]

MARKS_SEEN_S = 1.0
"""The pause between the marks and the smaller number of replicas, in seconds.

The controller watches VMs and their owners separately. If it saw the smaller number before a mark, it would delete an
unmarked VM. A controller that is late by more than this pause can still do so.
"""


async def change_members(session: Session, members: tuple[MemberName, ...], edits_of: Edits, done: str) -> list[Item]:
    """Change each VM or VMI, and return the objects as they were before.

    If one change is refused, nothing is changed. Raise Failed.
    """
    items = [await read_member(session, member) for member in members]
    try:
        changes = [(item, edits_of(item)) for item in items]
    except Refused as error:
        raise Failed(f"error: {error}") from error
    for item, edits in changes:
        await write(session, item, edits, done)
    return items


@click.command(
    "protect",
    cls=Verb,
    own=FLAGS["protect"],
    help="Keep VMs at every scale-in. The annotation is vmherd.dev/protect on the VM.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def protect(arguments: tuple[str, ...], **values: Any) -> None:
    _protect(arguments, values, protected=True)


@click.command("unprotect", cls=Verb, own=FLAGS["unprotect"], help="End the protection of VMs.")
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def unprotect(arguments: tuple[str, ...], **values: Any) -> None:
    _protect(arguments, values, protected=False)


def _protect(arguments: tuple[str, ...], values: dict[str, Any], *, protected: bool) -> None:
    members, done = parse_members(arguments), "protected" if protected else "unprotected"

    async def work(session: Session) -> None:
        await change_members(session, members, lambda item: protect_edits(item.document, protected=protected), done)

    carry_out(flags_of(values), work)


@click.command(
    "remove",
    cls=Verb,
    own=FLAGS["remove"],
    help="Mark VMs as the first to leave at a scale-in. With --scale-in, they leave now.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def remove(arguments: tuple[str, ...], scale_in: bool, undo: bool, **values: Any) -> None:
    if scale_in and undo:
        raise click.UsageError("--scale-in and --undo contradict each other")
    members = parse_members(arguments)

    async def work(session: Session) -> None:
        done = "no longer marked for removal" if undo else "marked for removal"
        items = await change_members(session, members, lambda item: remove_edits(item.document, on=not undo), done)
        if scale_in:
            if session.flags.dry_run == NONE:
                await sleep(MARKS_SEEN_S)
            await _scale_in(session, items)
        elif not undo and not session.flags.output:
            note("Note: it leaves first when its pool or set is scaled in; --scale-in does this now.")

    carry_out(flags_of(values), work)


async def _scale_in(session: Session, items: list[Item]) -> None:
    """Reduce the replicas of each owner by the number of its marked members. Raise Failed, ApiError."""
    reader = Reader(session, session.namespace)
    for (kind, group, name), number in Counter(map(_owner_of, items)).items():
        [target] = await reader.targets([Subject(kind, group, name)])
        await _shrink(session, target, number)


def _owner_of(item: Item) -> tuple[Kind[Any], str, str]:
    kind, owner = owner_kind(item.document), controller(item.document) or {}
    return kind, owner["apiVersion"].partition("/")[0], owner["name"]


async def _shrink(session: Session, target: Target, number: int) -> None:
    found = 1 if target.owner.spec.replicas is None else target.owner.spec.replicas
    replicas = max(found - number, 0)
    if session.flags.dry_run != CLIENT:
        # The version keeps two people from counting down at the same time.
        metadata = {"resourceVersion": target.owner.metadata.resource_version, "uid": target.owner.metadata.uid}
        await session.request(
            "PATCH",
            target.resource.path(*target.key, "scale"),
            params=params_of(session.flags),
            body=msgspec.json.encode({"metadata": metadata, "spec": {"replicas": replicas}}),
            content_type=PatchType.MERGE,
        )
    if not session.flags.output:
        print(f"{target.path} scaled to {replicas}{session.flags.dry_run_suffix}")
