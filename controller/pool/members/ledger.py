"""The ledger: what each VM of a pool does now, and since when (P31), and which VMs are lost (P28).

The update, drains, substitutes, steps, returns and the status count with these states. Healing has a test of its own
for a VM that fails, which needs no time (`healing.failing`).

No reconciliation writes until the cache shows all earlier writes (R9). So the ledger shows the VMs that the last
reconciliation restarted.

A VM is lost if its node does not answer. When a kubelet stops, Kubernetes sets the condition `Ready` of the Pods on its
node to False, without a reason. When the time of the Pods' tolerations has passed (300 s by default), Kubernetes
deletes the Pods. No kubelet confirms that the guest has ended, so the Pods stay Terminating, and the VMI stays in the
phase Running. KubeVirt starts the VM again only when its Pod is gone.

A terminating Pod alone does not prove that a VM is lost, because the guest may be shutting down. The unready period
knows since when the node does not answer. After a restart of the controller, only the time of the deletion tells: a
kubelet that answers ends a Pod after its grace period.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.quantities import seconds
from controller.kubevirt import vmis, vms
from controller.kubevirt.standby import is_standby
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_deleting, is_stop_requested, revision_of
from controller.pool.members.machine import Machine, Machines, is_hidden
from controller.pool.members.unready_periods import STEADY, UnreadyPeriod, has_ended
from controller.pool.spec.intent import Intent
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
    if not machine.should_run and not machine.vm.undecodable:
        return State.IDLE, None
    if is_leaving(machine):
        return State.LEAVING, None
    since = _ready_since(machine, now)
    # A VM that was a standby is not in service yet.
    if since is None or (is_hidden(machine) and not is_standby(machine.vm, machine.vmi, now)):
        return State.DOWN, None
    at = min(since, now) + _must_stay_ready(machine, now, min_ready_s)  # the clock of the node may be ahead
    return (State.AVAILABLE, None) if at <= now else (State.COMING, at)


def is_leaving(machine: Machine) -> bool:
    vm, vmi = machine.vm, machine.vmi
    if is_deleting(vm) or is_draining(vm.metadata):
        return True
    return vmi is not None and (vmis.is_deleting(vmi) or is_stop_requested(vm, vmi.metadata.uid))


def open_period(machine: Machine) -> UnreadyPeriod | None:
    """Return the VM's unready period, or None if it is ready or stopped."""
    period = machine.downtime
    return period if period is not None and period.up_since is None and not is_deleting(machine.vm) else None


def member_unready_since(machine: Machine) -> datetime | None:
    """Return the time since which this VM is not ready, without its predecessors, or None if it is ready or stopped."""
    period, created = open_period(machine), with_timezone(machine.metadata.creation_timestamp)
    return max(period.since, created or period.since) if period is not None else None


def is_flapping(machine: Machine, now: datetime) -> bool:
    """Return True if the VM is in a crash loop and ready, but for less than `STEADY`."""
    period = machine.downtime
    return period is not None and period.crashes > 0 and period.up_since is not None and not has_ended(period, now)


def flapping_since(revisions: Iterable[ControllerRevision], machine: Machine, now: datetime) -> datetime | None:
    """Return the same as `member_stuck_since`, also while a VM in a crash loop is ready for a short time."""
    if machine.downtime is not None and is_flapping(machine, now):
        machine = replace(machine, downtime=replace(machine.downtime, up_since=None))
    return member_stuck_since(revisions, machine)


def member_stuck_since(revisions: Iterable[ControllerRevision], machine: Machine) -> datetime | None:
    """Return the time since which the VM has been unready with the revision that runs, or that should run.

    Return None if the VM is ready or stopped, or if KubeVirt has not tried its revision yet, because it waits after a
    failed start. The time before the creation of the VM's revision does not count.
    """
    period, vm = open_period(machine), machine.vm
    if period is None or (machine.vmi is None and vms.start_failures_of(vm) and period.revision != revision_of(vm)):
        return None
    created = [each.metadata.creation_timestamp for each in revisions if each.metadata.name == revision_of(vm)]
    return max((period.since, *filter(None, map(with_timezone, created))))


def _must_stay_ready(machine: Machine, now: datetime, min_ready_s: int) -> timedelta:
    period = machine.downtime
    crashes = period is not None and period.crashes > 0 and not has_ended(period, now)
    return max(timedelta(seconds=min_ready_s), STEADY if crashes else timedelta())


def _ready_since(machine: Machine, now: datetime) -> datetime | None:
    vmi = machine.vmi
    if vmi is None or not vmis.is_active(vmi):
        return None
    # If the Ready condition has no transition time, the VMI counts as ready for a very long time.
    return vmis.ready_since(vmi) or (now - LONG_AGO if vmis.is_ready(vmi) else None)


DEFAULT_GRACE_S: Final = 30
"""The grace period of a VMI without `terminationGracePeriodSeconds`."""

PADDING: Final = timedelta(seconds=60)
"""The time that a Pod may need in addition to the grace period of its VMI. KubeVirt adds 30 s to the grace period."""


def lost_members(members: Machines) -> Machines:
    """Return the VMs that may be lost: their node does not answer, or their Pod is terminating."""
    return members.where(lambda each: each.vmi is not None and _may_be_lost(each.vmi))


def is_known_loss(machine: Machine, after: timedelta, now: datetime) -> bool:
    """Return True for a lost VM that should run, but not for one that only restarts, or that a user stopped."""
    if machine.vmi is None or not machine.should_run or not _may_be_lost(machine.vmi):
        return False
    at = lost_at(machine, after)
    return _silent_since(machine) is not None or (at is not None and at <= now)


def lost_at(machine: Machine, after: timedelta) -> datetime | None:
    """Return the time at which a VM of `lost_members` gets a substitute, or None if it is not known. If only its
    terminating Pod shows that it may be lost, this is not before the end of the Pod's grace period.
    """
    since = lost_since(machine)
    if since is None or _silent_since(machine) is not None:
        return since and since + after
    return since + max(after, _grace_of(machine.vm) + PADDING)


def lost_since(machine: Machine) -> datetime | None:
    """Return the time since which the node of a VM of `lost_members` does not answer, or its Pod is terminating."""
    return _silent_since(machine) or (vmis.unready_since(machine.vmi) if machine.vmi is not None else None)


def _silent_since(machine: Machine) -> datetime | None:
    """Return the time since which the node does not answer, also while the Pod is terminating, or None."""
    if machine.vmi is not None and vmis.is_out_of_reach(machine.vmi):
        return vmis.unready_since(machine.vmi)
    return machine.downtime.silent_since if machine.downtime is not None else None


def count_substitutes(intent: Intent, regular: int, limit: int, lost: Machines, now: datetime) -> int:
    """Return how many substitutes the pool may have now: at most one for each known loss, and at most `maxUnavailable`.
    There is none if too many VMs are lost. `regular` is the number of wanted VMs without substitutes, and `limit` the
    maximum number of VMs, or 0.
    """
    after = intent.substitute_lost_after
    if after is None or len(lost) > intent.max_unhealthy.of(regular):
        return 0
    due = len(lost.where(lambda each: (at := lost_at(each, after)) is not None and at <= now))
    room = max(limit - regular, 0) if limit else due
    return min(due, intent.max_unavailable.of(regular), room)


def _may_be_lost(vmi: VirtualMachineInstance) -> bool:
    has_node = vmis.phase_of(vmi) in ("Scheduled", "Running")
    return has_node and (vmis.has_terminating_pod(vmi) or vmis.is_out_of_reach(vmi))


def _grace_of(vm: VirtualMachine) -> timedelta:
    template = vm.spec.template if vm.spec is not None else None
    grace_s = template.spec.termination_grace_period_seconds if template is not None and template.spec else None
    return seconds(DEFAULT_GRACE_S if grace_s is None else grace_s)
