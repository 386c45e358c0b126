"""Healing: the controller replaces VMs that fail to start (P15). Limits keep healing from making many VMs unavailable.

The controller deletes a failing VM, and a later pass creates a new VM with the same ordinal. If `statePreservation` is
Disabled, the VM is deleted in the foreground together with its disks. If `statePreservation` is Offline or Online, the
disks are kept, and the new VM uses them again. If a kept disk is the cause of the failure, the VM is not healed,
because a new VM would use the same disk. An Event then reports that the VM is not healed.

Before the controller deletes VMs, it writes records to the pool's annotation `vmherd.dev/healed`. The record of an
ordinal has the UID of the deleted VM, the number of healings in a row, and the time of the last healing. The records
are on the pool because they must survive the deletion of the VM and a crash of the controller. Old records are removed
when a new record is written.
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
from controller.pool.disks import add_finalizers, is_safe_to_delete
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
RECORD_LIFETIME: Final = timedelta(minutes=30)
START_TIMEOUT: Final = timedelta(minutes=5)
"""The time that a recreated VM has to become available. After this time, the VM no longer delays other healings."""

MAX_RECORDS: Final = 1000
"""The maximum number of records. So many records need a third of the space for all annotations of one object."""

MAX_DISK_NOTICES: Final = 10
"""The maximum number of Events about failing disks in one pass."""

DISK_STATES: Final = frozenset({"DataVolumeError", "ErrorPvcNotFound"})
"""The values of `printableStatus` that report a failure of the VM's disk."""

VALID_NUMBERS: Final = range(10**9)
"""The range of valid ordinals and of valid counts in a record."""

MAX_UNHEALTHY_DEFAULT: Final = Amount(50, percent=True)

TOO_MANY: Final = "healing is blocked: too many virtual machines fail at the same time"


class Record(Struct, frozen=True, array_like=True):
    """The last healing of an ordinal.

    `uid` is the UID of the deleted VM, `count` is the number of healings in a row, and `at` is the time of the last
    healing.
    """

    uid: str
    count: int
    at: datetime


class Recovering(Struct, frozen=True):
    """The healed ordinals whose new VM is not available yet.

    `number` is the number of all these ordinals. `absent` is the number of these ordinals that have no VM. `until` is
    the first time at which one of the recreated VMs is available or overdue, or None if no such time is known.
    """

    number: int
    absent: int = 0
    until: datetime | None = None


class FailingVM(Struct, frozen=True):
    """A member that fails.

    `due` is the first time at which the member may be replaced. `healed` is the number of earlier healings of its
    ordinal in a row.
    """

    vm: VirtualMachine
    ordinal: int
    why: str
    due: datetime
    healed: int


def plan_healing(snapshot: Snapshot, intent: Intent, members: tuple[VirtualMachine, ...]) -> Plan:
    """Plan the deletion of as many failing members as the limits allow.

    The next pass runs when the next member may be replaced, or when a recovering VM is available or overdue.

    A VM that is not ready because of a rollout does not count towards the limit. A failing VM was already unavailable,
    so its healing makes no further VM unavailable. The rollout counts healed VMs as unavailable. Therefore healing and
    rollout together never make more than `maxUnavailable` ready VMs unavailable.
    """
    if intent.healing is None:
        return Plan()
    records = read_records(snapshot, intent.healing)
    failing = _failing_vms(snapshot, intent.healing, members, records)
    recovering = count_recovering(snapshot, intent, members, records, {each.vm.metadata.uid for each in failing})
    next_times = [each.due for each in failing if each.due > snapshot.now]
    if recovering.until is not None:
        next_times.append(recovering.until)
    requeue_after_s = (min(next_times) - snapshot.now).total_seconds() if next_times else None
    preserve = intent.scale_in.preserve
    due = [each for each in failing if each.due <= snapshot.now]
    with_failing_disk = [each for each in due if preserve and printable_status_of(each.vm) in DISK_STATES]
    curable = [each for each in due if each not in with_failing_disk]
    disk_notices = tuple(map(_disk_notice, with_failing_disk[:MAX_DISK_NOTICES]))
    # VMs whose ordinal was never healed are healed first, then VMs whose ordinal was healed fewer times.
    curable.sort(key=lambda each: (each.healed, each.due, each.ordinal))
    if not curable:
        held = "healing is blocked: statePreservation keeps the disks that fail" if with_failing_disk else ""
        return Plan(notices=disk_notices, held=held, requeue_after_s=requeue_after_s)
    limit, notices = _max_unhealthy(snapshot, len(members) + recovering.absent)
    notices = (*disk_notices, *notices)
    unhealthy = len(failing) + recovering.number
    if unhealthy > limit:
        notices = (*notices, _too_many_notice(snapshot, members, unhealthy, limit))
        return Plan(held=TOO_MANY, notices=notices, requeue_after_s=requeue_after_s)
    max_healed = min(intent.most_unavailable, MAX_RECORDS)
    slots = max(min(max_healed - recovering.number, snapshot.limits.burst), 0)
    chosen = curable[:slots]
    stages = _stages(snapshot, chosen, records, preserve=preserve) if chosen else ()
    waiting = len(curable) - len(chosen)
    held = f"healing: {waiting} virtual machines wait until others are available" if waiting else ""
    return Plan(stages=stages, notices=notices, held=held, requeue_after_s=requeue_after_s)


def read_records(snapshot: Snapshot, healing: Healing) -> Mapping[int, Record]:
    """Return the records of recent healings, by ordinal. Old records and records that cannot be parsed are left out.

    A record may have a time in the near future, because the clock of an earlier leader may have been ahead.
    """
    text = annotations_of(snapshot.owner.metadata).get(HEALED, "")
    try:
        records = msgspec.json.decode(text, type=dict[int, Record]) if text else {}
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    lifetime = RECORD_LIFETIME + 2 * healing.min_failing
    return {
        ordinal: record
        for ordinal, record in records.items()
        if ordinal in VALID_NUMBERS
        and record.count in VALID_NUMBERS
        and record.at.tzinfo is not None
        and -LONGEST_PAUSE <= snapshot.now - record.at < lifetime
    }


def count_recovering(
    snapshot: Snapshot,
    intent: Intent,
    members: tuple[VirtualMachine, ...],
    records: Mapping[int, Record],
    failing: Collection[str] = (),
) -> Recovering:
    """Count the healed VMs that are terminating, absent, or recreated and not available yet.

    A recreated VM whose UID is in `failing` is not counted.
    """
    by_ordinal = {snapshot.ordinal_of(vm): vm for vm in members}
    min_ready = min_ready_of(snapshot).number
    terminating, absent = 0, 0
    deadlines = []
    for ordinal, record in records.items():
        vm = by_ordinal.get(ordinal)
        if vm is None:
            absent += 1
        elif vm.metadata.uid == record.uid:
            terminating += is_deleting(vm)
        elif vm.metadata.uid not in failing and (deadline := _start_deadline(snapshot, vm, record, min_ready)):
            deadlines.append(deadline)
    absent = min(absent, max(intent.wanted - len(members), 0))
    return Recovering(terminating + absent + len(deadlines), absent, min(deadlines, default=None))


def _start_deadline(snapshot: Snapshot, vm: VirtualMachine, record: Record, min_ready_s: int) -> datetime | None:
    """Return the time by which a recreated VM must become available (P14).

    The result is None if the VM is available, overdue or terminating.
    """
    availability = count_unavailable(snapshot, (vm,), min_ready_s)
    if is_deleting(vm) or not availability.unavailable:
        return None
    created_at = min(max(record.at, with_timezone(vm.metadata.creation_timestamp) or record.at), snapshot.now)
    deadline = availability.next_at or created_at + START_TIMEOUT
    return deadline if deadline > snapshot.now else None


def _failing_vms(
    snapshot: Snapshot, healing: Healing, members: tuple[VirtualMachine, ...], records: Mapping[int, Record]
) -> list[FailingVM]:
    """Return the members that fail, including members that may not be replaced yet."""
    found = []
    for vm in members:
        ordinal = snapshot.ordinal_of(vm)
        if ordinal is None or is_deleting(vm) or not is_meant_to_run(vm) or _is_up(snapshot, vm):
            continue
        failure = _failure_of(snapshot, vm, healing)
        if failure is not None:
            why, failed_at = failure
            record = records.get(ordinal)
            due = max((each for each in (failed_at, _pause_end(vm, record)) if each is not None), default=snapshot.now)
            found.append(FailingVM(vm, ordinal, why, due, record.count if record is not None else 0))
    return found


def _is_up(snapshot: Snapshot, vm: VirtualMachine) -> bool:
    """Return True if the VM or its VMI is ready.

    Both are checked, because the VM's status may be older than the status of its VMI.
    """
    vmi = snapshot.vmi_of(vm)
    return is_ready(vm) or (vmi is not None and vmis.is_ready(vmi))


def _failure_of(snapshot: Snapshot, vm: VirtualMachine, healing: Healing) -> tuple[str, datetime | None] | None:
    """Return the reason why the VM fails, and the first time at which the VM may be replaced.

    The result is None if the VM does not fail. The time is None if the VM may be replaced at once.
    """
    failures = start_failures_of(vm)
    if failures >= healing.threshold:
        return f"it failed to start {failures} times in a row", None
    state, since = printable_status_of(vm), unready_since(vm)
    if state in BROKEN_STATES and since is not None:
        seconds = int(healing.min_failing.total_seconds())
        # `since` is in the future if the clock of its writer was ahead. `min` limits the delay to `min_failing`.
        return f"{state} for longer than {seconds} s", min(since, snapshot.now) + healing.min_failing
    return None


def _pause_end(vm: VirtualMachine, record: Record | None) -> datetime | None:
    """Return the first time at which the VM's ordinal may be healed again, or None if there is no pause.

    If the record has the UID of the present VM, the deletion that the record announced did not happen, so there is no
    pause.
    """
    if record is None or record.uid == vm.metadata.uid:
        return None
    return record.at + pause_after(record.count)


def pause_after(count: int) -> timedelta:
    """Return the pause after `count` healings in a row.

    The pause is 10 seconds after the first healing. Each further healing doubles the pause, up to 5 minutes.
    """
    doublings: int = 2 ** min(count - 1, 16)
    return min(FIRST_PAUSE * doublings, LONGEST_PAUSE)


def _max_unhealthy(snapshot: Snapshot, members: int) -> tuple[int, tuple[Notice, ...]]:
    """Return the number of members that may fail at the same time, and an Event if the annotation cannot be parsed."""
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


def _too_many_notice(snapshot: Snapshot, members: Iterable[VirtualMachine], failing: int, limit: int) -> Notice:
    """Return an Event that reports that healing is blocked.

    The Event is sent again only if the spec changes, or if the VM that has been unready for the longest time is ready
    again.
    """
    down = [unready_since(vm) for vm in members if is_meant_to_run(vm) and not is_deleting(vm)]
    since = min((each for each in down if each is not None), default="")
    return Notice(
        reason="HealingHeld",
        message=(
            f"{failing} virtual machines fail at the same time, the limit is {limit}; "
            "no virtual machine is replaced until fewer fail"
        ),
        once=f"healing held {snapshot.owner.metadata.generation} {since}",
    )


def _disk_notice(failing: FailingVM) -> Notice:
    """Return an Event that reports that a VM is not healed, because the VM's disk fails and the pool keeps the disk."""
    name, state = failing.vm.metadata.name, printable_status_of(failing.vm)
    return Notice(
        reason="HealingHeld",
        message=(
            f"{name} is not replaced: its disk fails ({state}), and statePreservation keeps the disk, so a new "
            f"virtual machine would use the same disk; repair or delete the disk, or delete {name}"
        ),
        once=f"healing held {failing.vm.metadata.uid}",
    )


def _stages(
    snapshot: Snapshot, chosen: list[FailingVM], records: Mapping[int, Record], *, preserve: bool
) -> tuple[Stage, ...]:
    """Return the stages that heal the chosen VMs: one stage writes the records, and the next stage deletes the VMs.

    After a crash between these stages, the next plan deletes the same VMs and does not count the healing twice. With
    `preserve`, a VM without the pool finalizer gets the finalizer in this pass and is healed in a later pass (P10).
    """
    unsafe = [each.vm for each in chosen if preserve and not is_safe_to_delete(snapshot, each.vm)]
    chosen = [each for each in chosen if each.vm not in unsafe]
    if not chosen:
        return add_finalizers(unsafe)
    now = snapshot.now.astimezone(UTC).replace(microsecond=0)
    updated = dict(records)
    for each in chosen:
        previous = records.get(each.ordinal)
        if previous is None or previous.uid != each.vm.metadata.uid:
            updated[each.ordinal] = Record(each.vm.metadata.uid, previous.count + 1 if previous else 1, now)
    deletes = Stage(
        tuple(
            delete_of(each.vm, f"healing: {each.why}", foreground=not preserve, cause=Cause.HEALING) for each in chosen
        )
    )
    if updated == records:
        return (*add_finalizers(unsafe), deletes)
    newest = sorted(updated, key=lambda ordinal: (updated[ordinal].at, ordinal))[-MAX_RECORDS:]
    meta = snapshot.owner.metadata
    text = msgspec.json.encode({ordinal: updated[ordinal] for ordinal in sorted(newest)}).decode()
    body = msgspec.json.encode({"metadata": {"uid": meta.uid, "annotations": {HEALED: text}}})
    why = "records the ordinals that are healed"
    record = Patch(resource=snapshot.pools, key=meta.key, body=body, type=PatchType.MERGE, why=why, is_note=True)
    return (*add_finalizers(unsafe), Stage((record,)), deletes)
