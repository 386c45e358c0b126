"""The times at which VMs of a pool became unready (P14, P15)."""

from datetime import datetime

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis, vms
from controller.kubevirt.vms import is_deleting, revision_of
from controller.pool.members.machine import Machine
from controller.pool.members.snapshot import Snapshot
from controller.pool.members.unready_periods import Down


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


def member_stuck_since(snapshot: Snapshot, machine: Machine) -> datetime | None:
    """Return the time since which the VM has been unready with its present revision.

    Return None if the VM is ready or stopped. The time before the creation of the revision does not count.
    """
    period = open_period(machine)
    if period is None:
        return None
    vm, vmi = machine.vm, machine.vmi
    # The VM's condition does not change when the VM gets another revision. So the condition's time may belong to an old
    # template.
    has_new_template = period.template_since > period.since
    condition_time = None if has_new_template else vms.unready_since(vm)
    observed = vmis.unready_since(vmi) if vmi is not None else condition_time
    since = min(period.template_since, observed) if observed is not None else period.template_since
    created = [each.metadata.creation_timestamp for each in snapshot.revisions if each.metadata.name == revision_of(vm)]
    return max((since, *filter(None, map(with_timezone, created))))
