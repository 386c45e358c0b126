"""The update steps that the VMs of a pool need (P12, P13). The module `update` chooses the steps of one reconciliation.

An outdated VM first gets the spec of the current template. Then its VMI gets the change. If a VM needs new disks, the
VM is recreated instead.

A step is *costly* if it puts a ready VM at risk. A costly step makes the VM unavailable, or changes the VM's template
so that the VM must restart. Costly steps are limited (P14).
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from controller.kubevirt import vmis
from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import (
    AfterStop,
    after_stop,
    is_stop_requested,
    revision_of,
    starts_after_creation,
    template_labels_of,
)
from controller.pool.revisions import Revisions
from controller.pool.rollout import should_run
from controller.pool.snapshot import Snapshot
from controller.pool.template import Template
from informers.meta import labels_of


class Step(Enum):
    """The next action of the update of a VM and its VMI.

    UPDATE changes the spec of the VM. RELABEL patches a label of the VMI. RESTART restarts the VMI. RECREATE deletes
    the VM, and a later reconciliation creates the VM again.
    """

    NOTHING = auto()
    UPDATE = auto()
    RELABEL = auto()
    RESTART = auto()
    RECREATE = auto()


class PendingStep(Struct, frozen=True, kw_only=True):
    """A VM that needs an update step. `vmi` is its VMI, or None.

    `costly` is true for a ready VM whose VMI must restart. `risky` is true for a VM that should run, is not ready, and
    gets a new template. `begun` is true if the VM already has the spec of the current template. `reason` says why the
    step must wait, or is "" if the step can start.
    """

    vm: VirtualMachine
    vmi: VirtualMachineInstance | None
    step: Step
    costly: bool = False
    risky: bool = False
    begun: bool = False
    reason: str = ""


def is_updated(snapshot: Snapshot, revisions: Revisions, vm: VirtualMachine) -> bool:
    """Return True if the VM and its VMI have the current template. If there is no VMI, only the VM is checked."""
    vmi = snapshot.vmi_of(vm)
    on_current = revisions.is_current(revision_of(vm))
    return on_current and (vmi is None or revisions.is_current(vmi_revision_of(vmi)))


def vmi_revision_of(vmi: VirtualMachineInstance) -> str:
    return labels_of(vmi.metadata).get(REVISION_NAME, "")


def next_step(vm: VirtualMachine, vmi: VirtualMachineInstance, revisions: Revisions) -> Step:
    """Return the update step that the VMI needs (P13).

    The VM must have the current spec. If the VM is outdated, the result is NOTHING.
    """
    wanted, running = revision_of(vm), vmi_revision_of(vmi)
    if not revisions.is_current(wanted) or wanted == running or not vmis.is_active(vmi):
        return Step.NOTHING
    step = _step_between(revisions.templates.get(running), revisions.template)
    # A restarted VMI gets the revision label from the VM's template. If the VMI already has this label, a restart
    # changes nothing, so every reconciliation would restart the VMI.
    is_in_vain = step is Step.RESTART and running == template_labels_of(vm).get(REVISION_NAME, "")
    return Step.NOTHING if is_in_vain else step


def pending_step(
    snapshot: Snapshot, revisions: Revisions, vm: VirtualMachine, *, restarts: bool = True
) -> PendingStep | None:
    """Return the next update step of a VM, or None if the VM needs no step.

    If `restarts` is false, only the specs of VMs are updated.
    """
    if not revisions.is_current(revision_of(vm)):
        return _step_of_outdated(snapshot, revisions, vm, restarts=restarts)
    vmi = snapshot.vmi_of(vm)
    if vmi is None or not restarts:
        return None
    step = next_step(vm, vmi, revisions)
    match step:
        case Step.NOTHING:
            return None
        case Step.RELABEL:
            return PendingStep(vm=vm, vmi=vmi, step=step, begun=True)
        case Step.RECREATE if not starts_after_creation(vm):
            return None
        case Step.RESTART if after_stop(vm) is AfterStop.STAYS or is_stop_requested(vm, vmi.metadata.uid):
            return None
    # KubeVirt may have begun to resize the VMI because the pool changed the VM. The pool's restart gives the same size.
    reason = delicate_reason(vm, vmi, may_interrupt_resizing=True)
    return PendingStep(vm=vm, vmi=vmi, step=step, costly=vmis.is_ready(vmi), begun=True, reason=reason)


def _step_of_outdated(snapshot: Snapshot, revisions: Revisions, vm: VirtualMachine, *, restarts: bool) -> PendingStep:
    """Return the next update action for a VM whose spec is outdated.

    While KubeVirt works on the VM or its disks, the step waits. But a step that changes only labels and annotations
    does not wait.
    """
    vmi, current = snapshot.vmi_of(vm), revisions.template
    change_of_vm = _step_between(revisions.templates.get(revision_of(vm)), current)
    reason = delicate_reason(vm, vmi) if change_of_vm is not Step.RELABEL else ""
    update = PendingStep(vm=vm, vmi=vmi, step=Step.UPDATE, reason=reason)
    if not restarts or not should_run(snapshot, vm):
        return update
    if vmi is None or not vmis.is_active(vmi):
        return PendingStep(vm=vm, vmi=vmi, step=Step.UPDATE, risky=change_of_vm is not Step.RELABEL, reason=reason)
    change = _step_between(revisions.templates.get(vmi_revision_of(vmi)), current)
    if change is Step.RELABEL:
        return update
    ready = vmis.is_ready(vmi)
    step = Step.UPDATE
    if change is Step.RECREATE and starts_after_creation(vm):
        # KubeVirt creates new disks as soon as the VM's spec has new dataVolumeTemplates. So the spec stays.
        step = Step.RECREATE
    elif change is Step.RECREATE and ready:
        reason = reason or "it needs new disks, and its run strategy does not start a new virtual machine: delete it"
    return PendingStep(vm=vm, vmi=vmi, step=step, costly=ready, risky=not ready, reason=reason)


def _step_between(past: Template | None, current: Template) -> Step:
    """Return the step for a VMI that runs the template `past`. `past` is None if the template is not known."""
    if past is not None and past.disks != current.disks:
        return Step.RECREATE
    if past is not None and past.machine == current.machine:
        return Step.RELABEL
    return Step.RESTART
