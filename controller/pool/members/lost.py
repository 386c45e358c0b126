"""Lost VMs: the node of the VM does not answer (P28).

When a kubelet stops, Kubernetes sets the condition `Ready` of the Pods on its node to False, without a reason. When the
time of the Pods' tolerations has passed (300 s by default), Kubernetes deletes the Pods. No kubelet confirms that the
guest has ended, so the Pods stay Terminating, and the VMI stays in the phase Running. KubeVirt starts the VM again only
when its Pod is gone.

A terminating Pod alone does not prove that a VM is lost, because the guest may be shutting down. The unready period
knows since when the node does not answer. After a restart of the controller, only the time of the deletion tells: a
kubelet that answers ends a Pod after its grace period.
"""

from datetime import datetime, timedelta
from typing import Final

from controller.apimachinery.quantities import seconds
from controller.kubevirt import vmis
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_meant_to_run
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.unready_periods import Down
from controller.pool.spec.intent import Intent

DEFAULT_GRACE_S: Final = 30
"""The grace period of a VMI without `terminationGracePeriodSeconds`."""

PADDING: Final = timedelta(seconds=60)
"""The time that a Pod may need in addition to the grace period of its VMI. KubeVirt adds 30 s to the grace period."""


def lost_members(members: Machines) -> Machines:
    """Return the VMs that may be lost: their node does not answer, or their Pod is terminating."""
    return members.where(lambda each: each.vmi is not None and _may_be_lost(each.vmi))


def known_losses(members: Machines, after: timedelta | None, now: datetime) -> Machines:
    """Return the lost VMs that should run. A VM that only restarts, and one that a user stopped, is left out."""
    return members.where(lambda each: is_known_loss(each, after, now)) if after is not None else Machines()


def is_known_loss(machine: Machine, after: timedelta, now: datetime) -> bool:
    if machine.vmi is None or not is_meant_to_run(machine.vm) or not _may_be_lost(machine.vmi):
        return False
    at = lost_at(machine, after)
    return _silent_since(machine) is not None or (at is not None and at <= now)


def lost_at(machine: Machine, after: timedelta) -> datetime | None:
    """Return the time at which a VM of `lost_members` gets a substitute, or None if the time is not known.

    This is `after` the time since which its node does not answer. If only its terminating Pod shows that it may be
    lost, this is not before the end of the Pod's grace period.
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
    return machine.downtime.silent_since if isinstance(machine.downtime, Down) else None


def count_substitutes(intent: Intent, regular: int, limit: int, lost: Machines, now: datetime) -> int:
    """Return how many substitutes the pool may have now.

    There is at most one for each VM of `known_losses`, and at most `maxUnavailable`. There is none if too many VMs are
    lost. `regular` is the number of wanted VMs without substitutes, and `limit` the maximum number of VMs, or 0.
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
