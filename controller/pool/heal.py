"""Replacing VMs that do not come up (P15), with brakes: none of it may do more harm than the failure.

A failing VM is deleted, and a new one of the same ordinal is created. With statePreservation Disabled its disks are
deleted with it, in the foreground. With Offline or Online the disks are kept, and the new VM finds them by name. If the
disk itself is what fails, a new VM would find the same disk: healing holds, and says so. What was
healed lately is written to the pool before the delete, in the annotation `vmherd.dev/healed`: for each ordinal the UID
that goes, how often in a row, and when. It has to outlive the VM and a crash, and the pool is the one object that does
both. An ordinal's entry is dropped, when another is written, once nothing was wrong with it for long enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.field_error import quoted
from controller.apimachinery.int_or_percent import Amount, parse_amount
from controller.kubevirt import vmis
from controller.kubevirt.annotations import HEALED, MAX_UNHEALTHY
from controller.kubevirt.progress import invalid_annotation
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import (
    BROKEN_STATES,
    is_deleting,
    is_meant_to_run,
    is_ready,
    printable_status_of,
    start_failures_of,
    unready_since,
)
from controller.pool.disks import holds, is_safe
from controller.pool.intent import Intent
from controller.pool.policies import Healing
from controller.pool.rollout import count_unavailable, min_ready_of
from controller.pool.scale import delete_of
from controller.pool.snapshot import Snapshot
from controller.runtime.plan import Cause, Notice, Patch, Plan, Stage
from informers.meta import annotations_of
from informers.objects import PatchType

FIRST_PAUSE: Final = timedelta(seconds=10)
LONGEST_PAUSE: Final = timedelta(minutes=5)
FORGOTTEN_AFTER: Final = timedelta(minutes=30)
COMING_UP: Final = timedelta(minutes=5)
"""A healed VM that is not ready after this long, and not failing either, holds nobody up any longer."""

MOST_RECORDS: Final = 1000
"""So that the annotation stays a third of what all of an object's annotations may hold together."""

MOST_NOTICES: Final = 10
"""How many VMs whose disks fail are named in Events in one pass."""

DISK_STATES: Final = frozenset({"DataVolumeError", "ErrorPvcNotFound"})
"""The `printableStatus` of a VM whose disk is what fails."""

PLAUSIBLE: Final = range(10**9)

MAX_UNHEALTHY_DEFAULT: Final = Amount(50, percent=True)


class Record(Struct, frozen=True, array_like=True):
    """The last healing of an ordinal: the VM that went, how often in a row, and when."""

    uid: str
    count: int
    at: datetime


class Recovering(Struct, frozen=True):
    """How many were healed and are not back yet, how many of them are gone, and until when to wait for the next."""

    number: int
    absent: int = 0
    until: datetime | None = None


class FailingVM(Struct, frozen=True):
    """A member that fails, why, from when on it may be replaced, and how often its ordinal was healed in a row."""

    vm: VirtualMachine
    ordinal: int
    why: str
    due: datetime
    healed: int


def plan_healing(snapshot: Snapshot, intent: Intent, members: tuple[VirtualMachine, ...]) -> Plan:
    """Delete members that fail, as many as the brakes allow; and look again when the next one is due.

    What is not ready through a rollout does not use up the allowance: whoever is healed was missed before. The rollout
    counts those that are being healed, so both together never take away more than `maxUnavailable` that were ready.
    """
    if intent.healing is None:
        return Plan()
    records = read_records(snapshot, intent.healing)
    patients = _patients(snapshot, intent.healing, members, records)
    recovering = count_recovering(snapshot, intent, members, records, {each.vm.metadata.uid for each in patients})
    again_at = [each.due for each in patients if each.due > snapshot.now]
    if recovering.until is not None:
        again_at.append(recovering.until)
    soon = (min(again_at) - snapshot.now).total_seconds() if again_at else None
    preserve = intent.scale_in.preserve
    ripe = [each for each in patients if each.due <= snapshot.now]
    blocked = [each for each in ripe if preserve and printable_status_of(each.vm) in DISK_STATES]
    ripe = [each for each in ripe if each not in blocked]
    kept_disks = tuple(map(_disk_fails, blocked[:MOST_NOTICES]))
    # One that no healing helps must not come before those that have not been tried.
    ripe.sort(key=lambda each: (each.healed, each.due, each.ordinal))
    if not ripe:
        held = "healing holds: the disks that fail are to be kept" if blocked else ""
        return Plan(notices=kept_disks, held=held, requeue_after_s=soon)
    limit, notices = _most_unhealthy(snapshot, len(members) + recovering.absent)
    notices = (*kept_disks, *notices)
    together = len(patients) + recovering.number
    if together > limit:
        notices = (*notices, _held(snapshot, members, together, limit))
        return Plan(held="healing holds", notices=notices, requeue_after_s=soon)
    most = min(intent.most_unavailable, MOST_RECORDS)
    slots = max(min(most - recovering.number, snapshot.limits.burst), 0)
    chosen = ripe[:slots]
    stages = _stages(snapshot, chosen, records, preserve=preserve) if chosen else ()
    waiting = len(ripe) - len(chosen)
    held = f"healing: {waiting} wait for others to come up" if waiting else ""
    return Plan(stages=stages, notices=notices, held=held, requeue_after_s=soon)


def read_records(snapshot: Snapshot, healing: Healing) -> Mapping[int, Record]:
    """What was healed lately, by ordinal. Whatever cannot be read was never written.

    A date that lies a little ahead is that of an earlier leader, whose clock was ahead of ours.
    """
    text = annotations_of(snapshot.owner.metadata).get(HEALED, "")
    try:
        records = msgspec.json.decode(text, type=dict[int, Record]) if text else {}
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    kept_for = FORGOTTEN_AFTER + 2 * healing.min_failing
    return {
        ordinal: record
        for ordinal, record in records.items()
        if ordinal in PLAUSIBLE
        and record.count in PLAUSIBLE
        and record.at.tzinfo is not None
        and -LONGEST_PAUSE <= snapshot.now - record.at < kept_for
    }


def count_recovering(
    snapshot: Snapshot,
    intent: Intent,
    members: tuple[VirtualMachine, ...],
    records: Mapping[int, Record],
    failing: Collection[str] = (),
) -> Recovering:
    """How many that were healed are on their way down or up again. Those of the UIDs `failing` are not."""
    by_ordinal = {snapshot.ordinal_of(vm): vm for vm in members}
    min_ready = min_ready_of(snapshot).number
    leaving, absent = 0, 0
    ends = []
    for ordinal, record in records.items():
        vm = by_ordinal.get(ordinal)
        if vm is None:
            absent += 1
        elif vm.metadata.uid == record.uid:
            leaving += is_deleting(vm)
        elif vm.metadata.uid not in failing and (until := _coming_up_until(snapshot, vm, record, min_ready)):
            ends.append(until)
    absent = min(absent, max(intent.wanted - len(members), 0))
    return Recovering(leaving + absent + len(ends), absent, min(ends, default=None))


def _coming_up_until(snapshot: Snapshot, vm: VirtualMachine, record: Record, min_ready_s: int) -> datetime | None:
    """How long one that was made anew may take to be available (P14); None where it is, took too long, or leaves."""
    missed = count_unavailable(snapshot, (vm,), min_ready_s)
    if is_deleting(vm) or not missed.unavailable:
        return None
    made_at = min(max(record.at, with_timezone(vm.metadata.creation_timestamp) or record.at), snapshot.now)
    until = missed.next_at or made_at + COMING_UP
    return until if until > snapshot.now else None


def _patients(
    snapshot: Snapshot, healing: Healing, members: tuple[VirtualMachine, ...], records: Mapping[int, Record]
) -> list[FailingVM]:
    patients = []
    for vm in members:
        ordinal = snapshot.ordinal_of(vm)
        if ordinal is None or is_deleting(vm) or not is_meant_to_run(vm) or _is_up(snapshot, vm):
            continue
        failing = _failing(snapshot, vm, healing)
        if failing is not None:
            why, since = failing
            record = records.get(ordinal)
            due = max((each for each in (since, _rested(vm, record)) if each is not None), default=snapshot.now)
            patients.append(FailingVM(vm, ordinal, why, due, record.count if record is not None else 0))
    return patients


def _is_up(snapshot: Snapshot, vm: VirtualMachine) -> bool:
    """Whether it is ready, or its VMI is and the VM's own status is yet to follow."""
    vmi = snapshot.vmi_of(vm)
    return is_ready(vm) or (vmi is not None and vmis.is_ready(vmi))


def _failing(snapshot: Snapshot, vm: VirtualMachine, healing: Healing) -> tuple[str, datetime | None] | None:
    """Why this VM counts as failing, and from when on it may be replaced (None: at once); None where it is well."""
    failures = start_failures_of(vm)
    if failures >= healing.threshold:
        return f"it failed to start {failures} times in a row", None
    state, since = printable_status_of(vm), unready_since(vm)
    if state in BROKEN_STATES and since is not None:
        lasting = f"{int(healing.min_failing.total_seconds())} s"
        # Another's clock may be ahead of ours: nobody fails for longer than that from now on.
        return f"{state} for longer than {lasting}", min(since, snapshot.now) + healing.min_failing
    return None


def _rested(vm: VirtualMachine, record: Record | None) -> datetime | None:
    """When an ordinal that was healed before may be healed again. The same VM means that its delete never happened."""
    if record is None or record.uid == vm.metadata.uid:
        return None
    return record.at + pause_after(record.count)


def pause_after(count: int) -> timedelta:
    """10 s after the first healing, then twice as long each time, up to 5 minutes."""
    doublings: int = 2 ** min(count - 1, 16)
    return min(FIRST_PAUSE * doublings, LONGEST_PAUSE)


def _most_unhealthy(snapshot: Snapshot, members: int) -> tuple[int, tuple[Notice, ...]]:
    meta = snapshot.owner.metadata
    text = annotations_of(meta).get(MAX_UNHEALTHY)
    amount = parse_amount(text) if text is not None else MAX_UNHEALTHY_DEFAULT
    if amount is not None:
        return amount.of(members), ()
    message = (
        f"annotation {MAX_UNHEALTHY} is {quoted(text or '')}: it must be a number from 1, "
        'or "1%" to "100%", so it counts as 50%'
    )
    return MAX_UNHEALTHY_DEFAULT.of(members), (invalid_annotation(MAX_UNHEALTHY, meta, message),)


def _held(snapshot: Snapshot, members: Iterable[VirtualMachine], failing: int, limit: int) -> Notice:
    """To be told once for each occasion: until whoever has been down the longest is up again, or the spec changes."""
    down = [unready_since(vm) for vm in members if is_meant_to_run(vm) and not is_deleting(vm)]
    since = min((each for each in down if each is not None), default="")
    return Notice(
        reason="HealingHeld",
        message=(
            f"{failing} virtual machines fail together, more than the {limit} that replacing helps with; "
            "none is replaced until fewer do"
        ),
        once=f"healing held {snapshot.owner.metadata.generation} {since}",
    )


def _disk_fails(patient: FailingVM) -> Notice:
    name, state = patient.vm.metadata.name, printable_status_of(patient.vm)
    return Notice(
        reason="HealingHeld",
        message=(
            f"{name} is not replaced: its disk is what fails ({state}), and statePreservation keeps its disks, so a "
            f"new virtual machine would find the same disk; repair or delete the disk, or delete {name}"
        ),
        once=f"healing held {patient.vm.metadata.uid}",
    )


def _stages(
    snapshot: Snapshot, chosen: list[FailingVM], records: Mapping[int, Record], *, preserve: bool
) -> tuple[Stage, ...]:
    """First the record, then the deletes: a crash between them heals the same VMs again, and counts them once.

    A VM whose disks are kept goes only with our finalizer, which holds it until its disks are safe (P10).
    """
    unsafe = [each.vm for each in chosen if preserve and not is_safe(snapshot, each.vm)]
    chosen = [each for each in chosen if each.vm not in unsafe]
    if not chosen:
        return holds(unsafe)
    now = snapshot.now.astimezone(UTC).replace(microsecond=0)
    updated = dict(records)
    for each in chosen:
        before = records.get(each.ordinal)
        if before is None or before.uid != each.vm.metadata.uid:
            updated[each.ordinal] = Record(each.vm.metadata.uid, before.count + 1 if before else 1, now)
    deletes = Stage(
        tuple(
            delete_of(each.vm, f"healing: {each.why}", foreground=not preserve, cause=Cause.HEALING) for each in chosen
        )
    )
    if updated == records:
        return (*holds(unsafe), deletes)
    newest = sorted(updated, key=lambda ordinal: (updated[ordinal].at, ordinal))[-MOST_RECORDS:]
    meta = snapshot.owner.metadata
    text = msgspec.json.encode({ordinal: updated[ordinal] for ordinal in sorted(newest)}).decode()
    body = msgspec.json.encode({"metadata": {"uid": meta.uid, "annotations": {HEALED: text}}})
    why = "what is being healed"
    record = Patch(resource=snapshot.pools, key=meta.key, body=body, type=PatchType.MERGE, why=why, is_note=True)
    return (*holds(unsafe), Stage((record,)), deletes)
