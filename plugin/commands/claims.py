"""`kubectl vmherd claim` and `release`: take a VM of a pool for a job, and give it back (P33)."""

import re
from asyncio import sleep
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

import click
import msgspec

from controller.apimachinery.conditions import time_text
from controller.events.event import EVENTS
from controller.kinds import POOLS
from controller.kubevirt.annotations import CLAIMED_BY, CLAIMED_UNTIL
from controller.kubevirt.busy import CLAIMANT_PATTERN
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting
from controller.pool.claimed import free_members
from controller.pool.members.ledger import is_leaving
from controller.pool.members.machine import Machine
from controller.pool.members.revisions import is_updated
from controller.pool.members.situation import Situation
from informers.errors import AlreadyExists, Conflict, Forbidden
from informers.meta import annotations_of
from informers.objects import PatchType, read_meta
from plugin import clock
from plugin.claim_secrets import check_secret, give_secret, read_files
from plugin.command import Subjects, on_members, on_objects
from plugin.commands.membership import note_about_surplus
from plugin.connection import Failed, Session
from plugin.flags import FOR_PROGRAMS, NAME
from plugin.members import subject_of
from plugin.printing import print_lines, print_value
from plugin.reading import Reader
from plugin.subjects import Subject
from plugin.views.membership import Item, release_edits
from plugin.writing import write

PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0
"""The first and the longest pause between two looks for a free VM. Each look reads the VMs of the namespace."""

LOOKS: Final = 5
"""The number of looks without a pause: one finds a free VM, the next sees the claim, and others may be quicker."""

NOT_CLAIMED: Final[Mapping[str, None]] = {CLAIMED_BY: None, CLAIMED_UNTIL: None}


@on_objects("claim", metavar="POOL")
async def claim(
    session: Session,
    subjects: Subjects,
    *,
    claimant: str,
    until_s: float | None,
    wait_s: float,
    secret: Sequence[str],
) -> None:
    """Take a free VM of a pool. The annotation is vmherd.dev/claimed-by on the VM.

    --secret makes a Secret for the VM, with the name in its optional secret volume. A guest that runs sees it through a
    virtiofs filesystem, in one to two minutes. A disk has it only after a restart of the VM.
    """
    if len(subjects) != 1 or subjects[0].kind is not POOLS or not subjects[0].name:
        raise click.UsageError("name one pool, such as vmpool/web")
    if not re.fullmatch(CLAIMANT_PATTERN, claimant, re.ASCII):
        raise click.UsageError("--for must be 1 to 253 characters without spaces, such as job-123")
    pool, data = subjects[0], read_files(secret)
    if data:
        await check_secret(session, await _look(session, pool), data)
    until = clock.now() + timedelta(seconds=until_s) if until_s is not None else None
    deadline = clock.now() + timedelta(seconds=wait_s)
    pause_s = PAUSE_S
    while (machine := await take(session, pool, claimant, until)) is None:
        left_s = (deadline - clock.now()).total_seconds()
        if left_s <= 0:
            situation = await _look(session, pool)
            await _tell_vain_wait(session, situation, claimant, wait_s)
            raise Failed(f"error: {pool} has no free VM: {_why_none(situation, pool)}")
        await sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    await _print(session, machine, await give_secret(session, pool.name, machine, data) if data else "")


async def take(session: Session, pool: Subject, claimant: str, until: datetime | None) -> Machine | None:
    """Claim a VM and return it, or None if no VM is free. A VM that is claimed for the same already is returned.

    The VM is read again after the claim: two callers with the same name may each claim a VM at the same time, and then
    the first in the order of the ordinals stays. A VM that leaves since then is given back. A later claim with `until`
    moves the end.
    """
    ours = {CLAIMED_BY: claimant, CLAIMED_UNTIL: time_text(until) if until is not None else None}
    for _ in range(LOOKS):
        situation = await _look(session, pool)
        claimed = situation.claimed.where(lambda each: annotations_of(each.metadata)[CLAIMED_BY] == claimant)
        found = sorted(claimed, key=situation.snapshot.rank_of)
        staying = [each for each in found if not is_leaving(each)]
        for each in found:
            if each not in staying[:1] and not is_deleting(each.vm):
                await _mark(session, each.vm, NOT_CLAIMED)
        if staying and (until is None or annotations_of(staying[0].metadata).get(CLAIMED_UNTIL) == ours[CLAIMED_UNTIL]):
            return staying[0]
        chosen = staying[:1] or sorted(free_members(situation), key=situation.snapshot.rank_of)
        if not chosen:
            return None
        for each in chosen:
            if await _mark(session, each.vm, ours):
                break
    return None


def _why_none(situation: Situation, this: Subject) -> str:
    outdated = len(situation.members.where(lambda each: not is_updated(situation.revisions, each)))
    if outdated:
        many = "1 VM has" if outdated == 1 else f"{outdated} VMs have"
        return f"{many} an older template, and only current ones are claimed; see 'kubectl vmherd why {this}'"
    return f"see 'kubectl vmherd tree {this}'"


async def _look(session: Session, pool: Subject) -> Situation:
    reader = Reader(session, session.namespace)
    return await reader.pool(await reader.target(pool))


async def _mark(session: Session, vm: VirtualMachine, marks: Mapping[str, str | None]) -> bool:
    """Write the marks. Return False if the VM has changed since it was read, for example because another has it.

    Raise Failed if a policy takes a mark back. A claim without its end would keep the VM for ever, so a new one ends.
    """
    meta = {"uid": vm.metadata.uid, "resourceVersion": vm.metadata.resource_version, "annotations": marks}
    body = msgspec.json.encode({"metadata": meta})
    try:
        shown = read_meta(await session.patch(VMS, vm.metadata.key, body, content_type=PatchType.MERGE))
    except Conflict:
        return False
    lost = [name for name, text in marks.items() if annotations_of(shown).get(name) != text]
    if lost and CLAIMED_BY not in annotations_of(vm.metadata):
        body = msgspec.json.encode({"metadata": {"uid": vm.metadata.uid, "annotations": NOT_CLAIMED}})
        await session.patch(VMS, vm.metadata.key, body, content_type=PatchType.MERGE)
    if lost:
        raise Failed(f"error: a policy takes {', '.join(lost)} of {vm.metadata.name} back, so it cannot be claimed")
    return True


async def _tell_vain_wait(session: Session, situation: Situation, claimant: str, wait_s: float) -> None:
    """Send an Event about the pool, once for each name of a claimant, if the user may do that."""
    meta, now = situation.pool, time_text(clock.now())
    digest = blake2b(f"{meta.uid} {claimant}".encode(), digest_size=8).hexdigest()
    pools = situation.snapshot.pools
    event = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{meta.name}.{digest}", "namespace": meta.namespace},
        "involvedObject": {"apiVersion": pools.api_version, "kind": pools.kind, **meta.key._asdict(), "uid": meta.uid},
        "reason": "ClaimUnserved",
        "message": f"{claimant} found no free virtual machine within {wait_s:.0f} s",
        "type": "Warning",
        "source": {"component": "kubectl-vmherd"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    with suppress(AlreadyExists, Forbidden):
        await session.request("POST", EVENTS.path(meta.namespace), body=msgspec.json.encode(event))


async def _print(session: Session, machine: Machine, secret: str) -> None:
    meta, flags = machine.metadata, session.flags
    path, marks = f"virtualmachine.{VMS.group}/{meta.name}", annotations_of(meta)
    if flags.output == NAME:
        print_lines([path])
        return
    status = msgspec.json.decode(await session.request("GET", VMIS.path(*meta.key))).get("status") or {}
    interfaces, until = status.get("interfaces") or [{}], marks.get(CLAIMED_UNTIL)
    address, node = interfaces[0].get("ipAddress") or "", status.get("nodeName") or ""
    if flags.output in FOR_PROGRAMS:
        found = {"name": meta.name, "namespace": meta.namespace, "address": address, "node": node}
        found |= {"claimedBy": marks[CLAIMED_BY], "claimedUntil": until, **({"secret": secret} if secret else {})}
        print_value(found, flags.output)
        return
    end = f" until {until}" if until is not None else ""
    seen = f"address {address or '-'}, node {node or '-'}{f', secret {secret}' if secret else ''}"
    print_lines([f"{path} claimed by {marks[CLAIMED_BY]}{end}, {seen}"])


@on_members("release")
async def release(session: Session, item: Item, keep: bool) -> None:
    """End claims. The VMs are deleted with their disks, and others take their place. With --keep they stay, and others
    leave if the pool has too many.
    """
    done = "given back" if keep else "released"
    await write(session, item, release_edits(item, None if keep else clock.now()), done)
    if keep:
        note_about_surplus(session, await Reader(session, session.namespace).target(subject_of(item)), 1)
