"""Failing VMs: the VMs that healing replaces, the earliest time of each replacement, and the records of healings (P15).

A VM fails if one of these conditions is true:

- The VM has failed to start at least `startUpFailureThreshold` times in a row.
- The VM's `printableStatus` reports an error, and the VM has not been ready for `minFailingToStartDuration`.
- The VM runs, and has not been ready for the time in the annotation `vmherd.dev/replace-unready-after-seconds`.

The pool's annotation `vmherd.dev/healed` has a record for each ordinal: the UID of the deleted VM, the number of
healings in a row, and the time of the last healing. A record is written before the VM is deleted. So a record with the
UID of the present VM announces the deletion of this VM. The VM is deleted `ANNOUNCEMENT` later, so that users and
monitoring can see the failure. Old records are removed when a new record is written.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import HEALED, REPLACE_UNREADY_AFTER
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import BROKEN_STATES, is_deleting, is_ready, printable_status_of, start_failures_of
from controller.pool.members.ledger import State, member_unready_since, open_period, state_of
from controller.pool.members.machine import Machine
from controller.pool.members.notes import MAX_ENTRIES, VALID_NUMBERS, Record, encode_note, read_note
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import Snapshot
from controller.replicas.draining import whole
from controller.replicas.notes import note_patch
from controller.runtime.actions import Patch
from controller.runtime.waits import FIRST_DELAY, LONGEST_DELAY, growing_delay

RECORD_LIFETIME: Final = timedelta(minutes=30)
START_TIMEOUT: Final = timedelta(minutes=5)
"""The time limit for a recreated VM to become available. After this time, the VM no longer delays other healings."""

ANNOUNCEMENT: Final = timedelta(seconds=3)
"""The time between the announcement of a healing and the deletion of the VM."""

ANNOUNCEMENT_LIFETIME: Final = timedelta(seconds=30)
"""The age at which the announcement of a deletion is no longer valid. The deletion then needs a new announcement."""


class Recovering(Struct, frozen=True):
    """The ordinals whose VM was deleted for healing, and whose new VM is not available yet.

    `number` counts all these ordinals, and `absent` counts the ordinals without a VM. The field `until` is the next
    time at which a recreated VM becomes available or exceeds `START_TIMEOUT`, or None.
    """

    number: int
    absent: int = 0
    until: datetime | None = None


def read_records(situation: Situation) -> Mapping[int, Record]:
    """Return the records of recent healings, by ordinal.

    Old records and malformed records are left out. Times in the near future are valid, because the clock of an earlier
    leader may have been ahead.
    """
    intent = situation.intent
    if not intent.heals:
        return {}
    longest_failing = intent.healing.min_failing if intent.healing is not None else timedelta()
    slowest = max(longest_failing, intent.settings.replace_unready_after or timedelta())
    lifetime = RECORD_LIFETIME + 2 * slowest
    return {
        ordinal: record
        for ordinal, record in read_note(situation.pool, HEALED, Record).items()
        if record.count in VALID_NUMBERS
        and record.at.tzinfo is not None
        and -LONGEST_DELAY <= situation.now - record.at < lifetime
    }


def count_recovering(situation: Situation, records: Mapping[int, Record], failing: Collection[str] = ()) -> Recovering:
    """Count the healed VMs that are not available: terminating, absent and starting VMs.

    VMs with a UID in `failing` are not counted.
    """
    if not records:
        return Recovering(0)
    snapshot, members = situation.snapshot, situation.members
    by_ordinal = {snapshot.ordinal_of(each): each for each in members}
    min_ready = situation.intent.min_ready_s
    terminating, absent = 0, 0
    deadlines = []
    for ordinal, record in records.items():
        machine = by_ordinal.get(ordinal)
        if machine is None:
            absent += 1
        elif machine.metadata.uid == record.uid:
            terminating += is_deleting(machine.vm)
        elif machine.metadata.uid not in failing and (
            deadline := _start_deadline(snapshot, machine, record, min_ready)
        ):
            deadlines.append(deadline)
    absent = min(absent, max(situation.target.wanted - len(members), 0))
    return Recovering(terminating + absent + len(deadlines), absent, min(deadlines, default=None))


def _start_deadline(snapshot: Snapshot, machine: Machine, record: Record, min_ready_s: int) -> datetime | None:
    """Return the deadline for a recreated VM to become available (P14).

    The result is None if the VM is available or terminating, or if the deadline has passed.
    """
    state, available_at = state_of(machine, snapshot.now, min_ready_s)
    if is_deleting(machine.vm) or state in (State.AVAILABLE, State.IDLE):
        return None
    created_at = min(max(record.at, with_timezone(machine.metadata.creation_timestamp) or record.at), snapshot.now)
    deadline = available_at or created_at + START_TIMEOUT
    return deadline if deadline > snapshot.now else None


def pause_end(vm: VirtualMachine, record: Record | None) -> datetime | None:
    """Return the first time at which the VM's ordinal may be healed again, or None if there is no pause.

    `record` is the last healing of the ordinal. If the record contains the UID of this VM, the VM was not deleted yet.
    Then there is no pause.
    """
    if record is None or record.uid == vm.metadata.uid:
        return None
    return record.at + growing_delay(record.count, FIRST_DELAY, LONGEST_DELAY)


def announced_deletion(vm: VirtualMachine, record: Record | None, now: datetime) -> datetime | None:
    """Return the time at which the announced deletion of the VM is due, or None if no deletion is announced.

    An announcement older than `ANNOUNCEMENT_LIFETIME` is not valid, because the VM may have been ready in the meantime.
    An announcement in the future is not valid either.
    """
    if record is None or record.uid != vm.metadata.uid or not -ANNOUNCEMENT <= now - record.at < ANNOUNCEMENT_LIFETIME:
        return None
    return record.at + ANNOUNCEMENT


def record_patch(snapshot: Snapshot, records: Mapping[int, Record], announced: Mapping[int, VirtualMachine]) -> Patch:
    """Return a patch that announces the deletion of these VMs.

    A repeated announcement for the same VM does not change the number of healings.
    """
    at = whole(snapshot.now)
    updated = dict(records)
    for ordinal, vm in announced.items():
        previous = records.get(ordinal)
        uid, count = vm.metadata.uid, previous.count if previous is not None else 0
        is_repeated = previous is not None and previous.uid == uid
        updated[ordinal] = Record(uid, count if is_repeated else count + 1, at)
    newest = sorted(updated, key=lambda ordinal: (updated[ordinal].at, ordinal))[-MAX_ENTRIES:]
    entries = {ordinal: updated[ordinal] for ordinal in newest}
    why = "records the ordinals that are healed"
    return note_patch(snapshot.pools, snapshot.owner.metadata, {HEALED: encode_note(entries)}, why)


class Failure(Struct, frozen=True):
    """The reason why a VM fails, and the earliest time of its replacement.

    `is_certain` is false if the VM possibly becomes ready without a replacement.
    """

    at: datetime
    why: str
    is_certain: bool = True


class FailingVM(Struct, frozen=True):
    """A VM that fails.

    `due` is the earliest time of its replacement. `healed` is the number of recent healings of its ordinal. `announced`
    is the time of the announced deletion, or None. Until the time `certain_at`, the VM possibly becomes ready without a
    replacement. It is `ANNOUNCEMENT` before its failure: a healing that is announced then sees the failure.
    """

    machine: Machine
    ordinal: int
    why: str
    due: datetime
    healed: int
    announced: datetime | None
    certain_at: datetime


def failing_vms(situation: Situation, records: Mapping[int, Record]) -> list[FailingVM]:
    """Return the failing VMs of the pool, by name. The replacement of some VMs may have to wait.

    A lost VM is left out, because it could not be created again before its node answers (P28).
    """
    down = situation.members.where(_is_down).without(situation.lost)
    found = []
    for group in down.groups:
        failures = _failures(situation, group.traits)
        if failures:
            found += [each for machine in group if (each := _failing(situation, machine, failures, records))]
    return sorted(found, key=lambda each: each.machine.metadata.name)


def failure_of(situation: Situation, machine: Machine) -> Failure | None:
    """Return the first failure of a VM that should run and is not ready, or None."""
    failures = _failures(situation, machine) if _is_down(machine) else []
    return min(failures, key=lambda failure: failure.at, default=None)


def _failures(situation: Situation, machine: Machine) -> list[Failure]:
    """Return the failures of a VM. VMs with equal traits have equal failures."""
    return [*_start_failures(situation, machine), *_unready_failure(situation, machine)]


def _failing(
    situation: Situation, machine: Machine, failures: list[Failure], records: Mapping[int, Record]
) -> FailingVM | None:
    ordinal = situation.snapshot.ordinal_of(machine)
    if ordinal is None:
        return None
    first = min(failures, key=lambda failure: failure.at)
    record = records.get(ordinal)
    return FailingVM(
        machine,
        ordinal,
        first.why,
        due=max(first.at, pause_end(machine.vm, record) or first.at),
        healed=record.count if record is not None else 0,
        announced=announced_deletion(machine.vm, record, situation.now),
        certain_at=min(situation.now if each.is_certain else each.at - ANNOUNCEMENT for each in failures),
    )


def _is_down(machine: Machine) -> bool:
    """Return True if a VM should run, and neither the VM nor its VMI is ready.

    The function also checks the VMI, because the status of the VM may be older than the status of the VMI.
    """
    is_up = is_ready(machine.vm) or (machine.vmi is not None and vmis.is_ready(machine.vmi))
    return machine.should_run and not is_deleting(machine.vm) and not is_up


def _start_failures(situation: Situation, machine: Machine) -> Iterator[Failure]:
    healing = situation.intent.healing
    if healing is None:
        return
    failures, state = start_failures_of(machine.vm), printable_status_of(machine.vm)
    since = member_unready_since(machine)
    unready_s = (situation.now - since) // timedelta(seconds=1) if since is not None else 0
    limit_s = int(healing.min_failing.total_seconds())
    number = (
        f"it failed to start {failures} time{'' if failures == 1 else 's'} in a row, the limit is {healing.threshold}"
    )
    duration = f"it has not been ready for {unready_s} s, the limit is {limit_s} s"
    if failures >= healing.threshold:
        yield Failure(situation.now, f"{number}; {duration}")
    elif state in BROKEN_STATES and since is not None:
        yield Failure(since + healing.min_failing, f"{state}, and {duration}; {number}")


def _unready_failure(situation: Situation, machine: Machine) -> Iterator[Failure]:
    """Yield the failure of a VM that runs and is not ready.

    A VM in a crash loop counts as running, although its VMI is often not in the phase Running.
    """
    limit, period, vmi = situation.intent.settings.replace_unready_after, open_period(machine), machine.vmi
    since = member_unready_since(machine)
    if limit is None or period is None or since is None:
        return
    if not period.crashes and (vmi is None or not vmis.is_running(vmi)):
        return
    unready_s = (situation.now - since) // timedelta(seconds=1)
    text = f"it runs, but has not been ready for {unready_s} s; {REPLACE_UNREADY_AFTER} is {limit.total_seconds():.0f}"
    yield Failure(since + limit, text, is_certain=False)
