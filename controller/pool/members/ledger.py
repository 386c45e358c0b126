"""The ledger: what each VM of a pool does now, and since when (P31).

The update, healing, drains, substitutes, steps, returns and the status count with these states, and with no other.

No reconciliation writes until the cache shows all earlier writes (R9). So the ledger shows the VMs that the last
reconciliation restarted.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis, vms
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vms import is_deleting, is_meant_to_run, is_stop_requested, revision_of
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.unready_periods import STEADY, Down, down_of, has_ended
from controller.replicas.draining import is_draining

LONG_AGO: Final = timedelta(seconds=2**31)


class State(Enum):
    """The state of a VM.

    - AVAILABLE: it has been ready for the minimum time.
    - COMING: it is ready, but not for the minimum time.
    - DOWN: it should run, and is not ready.
    - LEAVING: it drains, restarts or is being deleted, so it is out of service or soon will be.
    - IDLE: it need not run.
    """

    AVAILABLE = auto()
    COMING = auto()
    DOWN = auto()
    LEAVING = auto()
    IDLE = auto()


class Outage(Struct, frozen=True):
    """The number of VMs out of service: all that are not available, without the idle ones. `ends_at` is the first time
    at which one of them becomes available if nothing changes, or None.
    """

    number: int
    ends_at: datetime | None = None


def outage_of(members: Machines, now: datetime, min_ready_s: int = 0) -> Outage:
    number, times = 0, []
    for group in members.groups:
        state, at = state_of(group.traits, now, min_ready_s)
        # The traits of a ready VM have no time.
        alike = state in (State.DOWN, State.LEAVING, State.IDLE) or not _must_stay_ready(group.traits, now, min_ready_s)
        states = [(state, at)] if alike else [state_of(each, now, min_ready_s) for each in group]
        out = [at for state, at in states if state not in (State.AVAILABLE, State.IDLE)]
        number += len(out) * len(group) if alike else len(out)
        times += [at for at in out if at is not None]
    return Outage(number, min(times, default=None))


def state_of(machine: Machine, now: datetime, min_ready_s: int = 0) -> tuple[State, datetime | None]:
    """Return the state of a VM, and for COMING the time at which it becomes available.

    A VM with an unreadable field may run, because its run strategy is unknown. If the guest crashed soon after the VM
    became ready, the VM must be ready for `STEADY` at least.
    """
    if not should_run(machine) and not machine.vm.undecodable:
        return State.IDLE, None
    if is_leaving(machine):
        return State.LEAVING, None
    since = _ready_since(machine, now)
    if since is None:
        return State.DOWN, None
    at = min(since, now) + _must_stay_ready(machine, now, min_ready_s)  # the clock of the node may be ahead
    return (State.AVAILABLE, None) if at <= now else (State.COMING, at)


def should_run(machine: Machine) -> bool:
    """Return True if the VM should have a running VMI now.

    The result is also True for a VM with the run strategy Once whose VMI was deleted. Its `printableStatus` is
    "Stopped", but KubeVirt starts the VM again.
    """
    vm, vmi = machine.vm, machine.vmi
    if is_meant_to_run(vm):
        return True
    is_once = vm.spec is not None and vm.spec.run_strategy == "Once"
    return is_once and (vmi is None or vmis.is_deleting(vmi))


def is_leaving(machine: Machine) -> bool:
    vm, vmi = machine.vm, machine.vmi
    if is_deleting(vm) or is_draining(vm.metadata):
        return True
    return vmi is not None and (vmis.is_deleting(vmi) or is_stop_requested(vm, vmi.metadata.uid))


def open_period(machine: Machine) -> Down | None:
    """Return the VM's unready period. Return None if the VM is ready now or should not run."""
    period = machine.downtime
    return period if isinstance(period, Down) and not is_deleting(machine.vm) else None


def member_unready_since(machine: Machine) -> datetime | None:
    """Return the time at which the VM became unready, or None if the VM is ready or stopped.

    The controller stores this time itself. If the conditions of the VM or its VMI show an earlier time, return the
    earlier time. This happens if the controller was not running when the VM became unready.
    """
    period = open_period(machine)
    if period is None:
        return None
    vm, vmi = machine.vm, machine.vmi
    times = (period.since, vms.unready_since(vm), vmis.unready_since(vmi) if vmi is not None else None)
    return min(time for time in times if time is not None)


def member_stuck_since(revisions: Iterable[ControllerRevision], machine: Machine) -> datetime | None:
    """Return the time since which the VM has been unready with the revision that runs, or that should run.

    Return None if the VM is ready or stopped, or if KubeVirt has not tried its revision yet, because it waits after a
    failed start. The time before the creation of the VM's revision does not count.
    """
    period, vm, vmi = open_period(machine), machine.vm, machine.vmi
    if period is None or (vmi is None and vms.start_failures_of(vm) and period.revision != revision_of(vm)):
        return None
    # The VM's condition does not change when the VM gets another revision. So the condition's time may belong to an old
    # template.
    has_new_template = period.template_since > period.since
    condition_time = None if has_new_template else vms.unready_since(vm)
    observed = vmis.unready_since(vmi) if vmi is not None else condition_time
    since = min(period.template_since, observed) if observed is not None else period.template_since
    created = [each.metadata.creation_timestamp for each in revisions if each.metadata.name == revision_of(vm)]
    return max((since, *filter(None, map(with_timezone, created))))


def _must_stay_ready(machine: Machine, now: datetime, min_ready_s: int) -> timedelta:
    period = machine.downtime
    crashes = period is not None and down_of(period).crashes and not has_ended(period, now)
    return max(timedelta(seconds=min_ready_s), STEADY if crashes else timedelta())


def _ready_since(machine: Machine, now: datetime) -> datetime | None:
    """Return the time since which the VM's VMI has been ready, or None if it is missing or not ready."""
    vmi = machine.vmi
    if vmi is None or not vmis.is_active(vmi):
        return None
    # If the Ready condition has no transition time, the VMI counts as ready for a very long time.
    return vmis.ready_since(vmi) or (now - LONG_AGO if vmis.is_ready(vmi) else None)
