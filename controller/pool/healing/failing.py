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
from controller.replicas.conditions import counted
from controller.replicas.draining import whole
from controller.runtime.actions import Stage
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
    """Return the valid records of recent healings, by ordinal. Times in the near future are valid, because the clock of
    an earlier leader may have been ahead.
    """
    intent = situation.intent
    if not intent.heals:
        return {}
    longest_failing = intent.healing.min_failing if intent.healing is not None else timedelta()
    lifetime = RECORD_LIFETIME + 2 * max(longest_failing, intent.settings.replace_unready_after or timedelta())

    def is_valid(record: Record) -> bool:
        is_read = record.count in VALID_NUMBERS and record.at.tzinfo is not None
        return is_read and -LONGEST_DELAY <= situation.now - record.at < lifetime

    return {ordinal: each for ordinal, each in read_note(situation.pool, HEALED, Record).items() if is_valid(each)}


def count_recovering(situation: Situation, records: Mapping[int, Record], failing: Collection[str] = ()) -> Recovering:
    """Count the healed VMs that are not available: terminating, absent and starting VMs. Those with a UID in `failing`
    are not counted.
    """
    if not records:
        return Recovering(0)
    snapshot, members = situation.snapshot, situation.members
    by_ordinal = {snapshot.ordinal_of(each): each for each in members}
    terminating, absent, deadlines = 0, 0, []
    for ordinal, record in records.items():
        machine = by_ordinal.get(ordinal)
        if machine is None:
            absent += 1
        elif machine.metadata.uid == record.uid:
            terminating += is_deleting(machine.vm)
        elif machine.metadata.uid not in failing and (deadline := _start_deadline(situation, machine, record)):
            deadlines.append(deadline)
    absent = min(absent, max(situation.target.wanted - len(members), 0))
    return Recovering(terminating + absent + len(deadlines), absent, min(deadlines, default=None))


def _start_deadline(situation: Situation, machine: Machine, record: Record) -> datetime | None:
    """Return the deadline for a recreated VM to become available (P14), or None if it is available or terminating, or
    the deadline has passed.
    """
    now, created = situation.now, with_timezone(machine.metadata.creation_timestamp)
    state, available_at = state_of(machine, now, situation.intent.min_ready_s)
    if is_deleting(machine.vm) or state in (State.AVAILABLE, State.IDLE):
        return None
    deadline = available_at or min(max(record.at, created or record.at), now) + START_TIMEOUT
    return deadline if deadline > now else None


def pause_end(vm: VirtualMachine, record: Record | None) -> datetime | None:
    """Return the first time at which the VM's ordinal may be healed again, or None if there is no pause. If the record
    has the UID of this VM, the VM was not deleted yet.
    """
    if record is None or record.uid == vm.metadata.uid:
        return None
    return record.at + growing_delay(record.count, FIRST_DELAY, LONGEST_DELAY)


def announced_deletion(vm: VirtualMachine, record: Record | None, now: datetime) -> datetime | None:
    """Return the time at which the announced deletion of the VM is due, or None if no deletion is announced. An old
    announcement is not valid, because the VM may have been ready in the meantime, nor is one in the future.
    """
    if record is None or record.uid != vm.metadata.uid or not -ANNOUNCEMENT <= now - record.at < ANNOUNCEMENT_LIFETIME:
        return None
    return record.at + ANNOUNCEMENT


def record_healings(
    snapshot: Snapshot, records: Mapping[int, Record], announced: Mapping[int, VirtualMachine]
) -> tuple[Stage, ...]:
    """Return a stage that announces the deletion of these VMs. If it repeats an announcement, it does not count."""
    if not announced:
        return ()
    updated = dict(records)
    for ordinal, vm in announced.items():
        previous, uid = records.get(ordinal, Record("", 0, snapshot.now)), vm.metadata.uid
        updated[ordinal] = Record(uid, previous.count + (previous.uid != uid), whole(snapshot.now))
    newest = sorted(updated, key=lambda ordinal: (updated[ordinal].at, ordinal))[-MAX_ENTRIES:]
    text = encode_note({ordinal: updated[ordinal] for ordinal in newest})
    return snapshot.note({HEALED: text}, "records the ordinals that are healed", essential=True).stages


class Failure(Struct, frozen=True):
    """The reason why a VM fails, and the earliest time of its replacement. If it is not certain, the VM may
    become ready without one.
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
    """Return the failing VMs of the pool, by name. A lost VM is left out, because it could not be created again before
    its node answers (P28).
    """
    found = []
    for group in situation.members.where(_is_down).without(situation.lost).groups:
        if failures := _failures(situation, group.traits):
            found += [each for machine in group if (each := _failing(situation, machine, failures, records))]
    return sorted(found, key=lambda each: each.machine.metadata.name)


def failure_of(situation: Situation, machine: Machine) -> Failure | None:
    """Return the first failure of a VM that should run and is not ready, or None."""
    failures = _failures(situation, machine) if _is_down(machine) else []
    return min(failures, key=lambda failure: failure.at, default=None)


def _failures(situation: Situation, machine: Machine) -> list[Failure]:
    """VMs with equal traits have equal failures."""
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
    """Return True if a VM should run, and neither it nor its VMI, whose status may be newer, is ready."""
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
    number = f"it failed to start {counted(failures, 'time', 'times')} in a row, the limit is {healing.threshold}"
    duration = f"it has not been ready for {unready_s} s, the limit is {limit_s} s"
    if failures >= healing.threshold:
        yield Failure(situation.now, f"{number}; {duration}")
    elif state in BROKEN_STATES and since is not None:
        yield Failure(since + healing.min_failing, f"{state}, and {duration}; {number}")


def _unready_failure(situation: Situation, machine: Machine) -> Iterator[Failure]:
    """A VM in a crash loop counts as running, although its VMI is often not in the phase Running."""
    limit, period, vmi = situation.intent.settings.replace_unready_after, open_period(machine), machine.vmi
    since = member_unready_since(machine)
    if limit is None or period is None or since is None:
        return
    if not period.crashes and (vmi is None or not vmis.is_running(vmi)):
        return
    unready_s = (situation.now - since) // timedelta(seconds=1)
    text = f"it runs, but has not been ready for {unready_s} s; {REPLACE_UNREADY_AFTER} is {limit.total_seconds():.0f}"
    yield Failure(since + limit, text, is_certain=False)
