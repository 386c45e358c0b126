"""Failing VMs: the VMs that healing replaces, and the earliest time of each replacement (P15).

A VM fails if one of these conditions is true:

- The VM has failed to start at least `startUpFailureThreshold` times in a row.
- The VM's `printableStatus` reports an error, and the VM has not been ready for `minFailingToStartDuration`.
- The VM runs, and has not been ready for the time in the annotation `vmherd.dev/replace-unready-after-seconds`.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from controller.kubevirt import vmis
from controller.kubevirt.annotations import REPLACE_UNREADY_AFTER
from controller.kubevirt.vms import (
    BROKEN_STATES,
    is_deleting,
    is_meant_to_run,
    is_ready,
    printable_status_of,
    start_failures_of,
)
from controller.pool.healing.records import announced_deletion, pause_end
from controller.pool.members.ledger import member_unready_since, open_period
from controller.pool.members.machine import Machine
from controller.pool.members.notes import Record
from controller.pool.members.situation import Situation


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
    is the time of the announced deletion, or None. `is_certain` is false if the VM possibly becomes ready without a
    replacement.
    """

    machine: Machine
    ordinal: int
    why: str
    due: datetime
    healed: int
    announced: datetime | None
    is_certain: bool


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
        is_certain=any(each.is_certain or each.at <= situation.now for each in failures),
    )


def _is_down(machine: Machine) -> bool:
    """Return True if a VM should run, and neither the VM nor its VMI is ready.

    The function also checks the VMI, because the status of the VM may be older than the status of the VMI.
    """
    is_up = is_ready(machine.vm) or (machine.vmi is not None and vmis.is_ready(machine.vmi))
    return is_meant_to_run(machine.vm) and not is_deleting(machine.vm) and not is_up


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
