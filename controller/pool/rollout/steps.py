"""The update steps that the VMs of a pool need (P12, P13). The module `update` chooses the steps of one reconciliation.

An outdated VM first gets the spec of the current template. Then its VMI gets the change: KubeVirt makes a live change
(see `live`), or the VMI is restarted. If disks only become larger, their claims are expanded first (P21). If a VM needs
new disks, the VM is recreated instead. A VM that its user has stopped is never recreated. It stays outdated, because a
new spec would not change its disks.

A step is *costly* if it puts a ready VM at risk. A costly step makes the VM unavailable, or changes the VM's template
so that the VM must restart. Costly steps are limited (P14).
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt import vmis
from controller.kubevirt.annotations import MOST_DISRUPTIVE, REVISION_NAME, VM_GENERATION
from controller.kubevirt.live_updates import Change, Verdict
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import (
    AfterStop,
    after_stop,
    has_own_revision,
    is_stop_requested,
    revision_of,
    template_labels_of,
)
from controller.pool.leaving.gates import Way, own_disks_of, stop_of
from controller.pool.members.machine import Machine, vmi_revision_of
from controller.pool.members.situation import Situation
from controller.pool.rollout.live import change_of, live_verdict, settled_at
from controller.pool.spec.policies import Strategy
from controller.pool.spec.template import DiskChange, Template, disk_change, larger_disks
from controller.replicas.draining import is_draining
from informers.meta import annotations_of

NOT_KNOWN: Final = "only KubeVirt knows if it makes the change while the VM runs"


class Step(Enum):
    """The next action of the update of a VM and its VMI.

    UPDATE changes the spec of the VM. LIVE waits until KubeVirt has changed the running VMI. RELABEL patches a label of
    the VMI. BACK gives the VM the spec of its VMI back. RESTART restarts the VMI. RECREATE deletes the VM, and a later
    reconciliation creates the VM again.
    """

    UPDATE = auto()
    LIVE = auto()
    RELABEL = auto()
    BACK = auto()
    RESTART = auto()
    RECREATE = auto()


class PendingStep(Struct, frozen=True, kw_only=True):
    """A member that needs an update step.

    `costly` is true for a ready VM whose VMI must restart, or may have to. `risky` is true for a VM that should
    run, is not ready, and gets a new template. `live` is true for a VM with a live change that has not ended, or
    that begins with the step. `is_open` is true if only KubeVirt knows whether the change needs a restart.
    `obstacle` is the reason why a change that KubeVirt can make while it runs needs a restart, or "". `due` is the
    time at which a LIVE step is judged again, or None. `stops` is true if KubeVirt stops the running VM. `begun` is
    true if the VM already has the spec of the current template. `reason` says why the step must wait, or is "" if
    the step can start. `needs_user` is true if the step waits until a user acts, and `remedy` is the command for
    it, or "". `lost_disks` are the disks that are deleted with the VM. `sizes` are the old and the new sizes of the
    claims that are expanded before the step, by name.
    """

    machine: Machine
    step: Step
    costly: bool = False
    risky: bool = False
    live: bool = False
    is_open: bool = False
    obstacle: str = ""
    due: datetime | None = None
    stops: bool = False
    begun: bool = False
    reason: str = ""
    needs_user: bool = False
    remedy: str = ""
    lost_disks: tuple[str, ...] = ()
    sizes: Mapping[str, tuple[str, str]] = {}

    @property
    def is_unfinished(self) -> bool:
        """Return True if a live change of the VM has begun, and KubeVirt has not asked for a restart."""
        return self.live and self.step in (Step.LIVE, Step.RELABEL)

    @property
    def drains(self) -> bool:
        return is_draining(self.machine.metadata)

    @property
    def takes_turn(self) -> bool:
        """Return True if the VM counts towards the limit of ready VMs. A VM that already has the new spec counts even
        if its restart must wait. A VM that drains is counted as out of service already.
        """
        may_keep_its_spec = bool(self.reason) and not self.begun
        return self.costly and not may_keep_its_spec and not self.drains

    @property
    def interrupts(self) -> bool:
        """Return True if the step, or the step after it, deletes the VM or restarts its VMI, and nothing says stop."""
        return not self.reason and (self.costly or self.risky or self.step in (Step.RESTART, Step.RECREATE))


def pending_step(situation: Situation, machine: Machine) -> PendingStep | None:
    """Return the next update step of a VM, or None if it needs none or stays outdated. The strategy opportunistic
    updates only the specs of VMs.
    """
    known = situation.known_steps
    found: tuple[Machine, PendingStep | None] | None = known.get(id(machine))
    if found is None:
        known[id(machine)] = found = machine, _step_of(situation, machine)
    return found[1]


def _stopped(situation: Situation, step: PendingStep, way: Way) -> PendingStep:
    """Return the step with the reason why it must wait."""
    stop = stop_of(situation, step.machine, way)
    return replace(step, reason=stop.reason, needs_user=stop.needs_user, remedy=stop.remedy)


def _step_of(situation: Situation, machine: Machine) -> PendingStep | None:
    vm, vmi, revisions = machine.vm, machine.vmi, situation.revisions
    proactive = situation.intent.update.strategy is Strategy.PROACTIVE
    is_begun = revisions.is_current(revision_of(vm)) and has_own_revision(vm)
    if is_begun and (vmi is None or not proactive):
        return None
    names = [revision_of(vm), *([vmi_revision_of(vmi)] if vmi is not None and vmis.is_active(vmi) else [])]
    for past in filter(None, map(revisions.templates.get, names)):
        change = disk_change(past, revisions.template)
        # If disks are only added or removed, a VM that the update does not restart gets the new spec. KubeVirt creates
        # the added disks at its next start.
        if change is DiskChange.OTHER or (change is DiskChange.NAMES and proactive and machine.should_run):
            return _recreation(situation, machine, begun=is_begun)
    live = _live_step(situation, machine, begun=is_begun) if proactive else None
    if live is not None:
        return live
    if not is_begun:
        return _step_of_outdated(situation, machine)
    return _step_of_vmi(situation, machine, vmi) if vmi is not None else None


def _live_step(situation: Situation, machine: Machine, *, begun: bool) -> PendingStep | None:
    """Return the step of a VM whose live change has begun, or None if there is none or it needs a restart (P13).

    `begun` is true if the VM has the current spec. If it has an earlier spec, its VMI first gets the label of this
    spec. Otherwise a return to the revision of the label would leave the change in the VMI.
    """
    (verdict, is_open), vmi = live_verdict(situation, machine), machine.vmi
    if verdict is None or vmi is None:
        return None
    at = settled_at(situation, machine)
    due = at if at > situation.now else None
    waits = PendingStep(machine=machine, step=Step.LIVE, live=True, is_open=is_open, begun=begun, due=due)
    if verdict is Verdict.APPLIED and not (is_open and waits.due):
        return replace(waits, step=Step.RELABEL)
    if verdict is Verdict.RESTART and not (begun and waits.due):
        is_rejected = situation.is_rejected(vmi_revision_of(vmi))  # the way back leads to no rejected template (P29)
        returns = begun and is_open and situation.intent.forbids_restarts and not is_rejected
        back = replace(waits, step=Step.BACK, obstacle=f"KubeVirt asks for a restart, and {MOST_DISRUPTIVE} forbids it")
        return _stopped(situation, back, Way.CHANGE) if returns else None
    return replace(waits, costly=is_open and verdict is not Verdict.CHANGING and vmis.is_ready(vmi))


def _step_of_vmi(situation: Situation, machine: Machine, vmi: VirtualMachineInstance) -> PendingStep | None:
    """Return the step of a VMI whose VM has the current spec (P13)."""
    vm, revisions = machine.vm, situation.revisions
    wanted, running = revision_of(vm), vmi_revision_of(vmi)
    if wanted == running or not vmis.is_active(vmi):
        return None
    step = _step_between(revisions.templates.get(running), revisions.template)
    if step is Step.RELABEL:
        return PendingStep(machine=machine, step=step, begun=True)
    # A restarted VMI gets the revision label from the VM's template, and KubeVirt's note of the VM's generation.
    # Without both, a restart would show nothing, so every reconciliation would restart the VMI.
    has_note = VM_GENERATION in annotations_of(vmi.metadata)
    is_in_vain = not has_note and running == template_labels_of(vm).get(REVISION_NAME, "")
    if is_in_vain or after_stop(vm) is AfterStop.STAYS or is_stop_requested(vm, vmi.metadata.uid):
        return None
    verdict, is_open = live_verdict(situation, machine)
    restart = PendingStep(machine=machine, step=step, costly=vmis.is_ready(vmi), is_open=is_open, begun=True)
    return _stopped(situation, replace(restart, live=verdict is not None), Way.RESTART)


def _step_of_outdated(situation: Situation, machine: Machine) -> PendingStep:
    """Return the step of a VM whose spec is outdated, and that keeps its disks.

    While KubeVirt works on the VM or its disks, a step waits that changes more than labels and annotations. Each step
    of a VM with an unreadable field waits, because its spec is unknown.
    """
    vm, vmi, revisions, name = machine.vm, machine.vmi, situation.revisions, revision_of(machine.vm)
    if name in revisions.unreadable:
        reason = f"its revision {name} cannot be read, so what to change is not known; delete the VM to replace it"
        return PendingStep(machine=machine, step=Step.UPDATE, reason=reason, needs_user=True)
    current, past = revisions.template, revisions.templates.get(name)
    sizes = _claim_sizes(situation, machine, past) if past is not None else {}
    changes_vm = bool(sizes) or _step_between(past, current) is not Step.RELABEL
    update = PendingStep(machine=machine, step=Step.UPDATE, sizes=sizes)
    way = Way.CHANGE if changes_vm or vm.undecodable else Way.LABELS
    if current.stops and machine.should_run and vmi is not None and vmis.is_active(vmi):
        return _stopped(situation, replace(update, stops=True, costly=vmis.is_ready(vmi)), Way.TEMPLATE)
    if situation.intent.update.strategy is not Strategy.PROACTIVE or not machine.should_run:
        return _stopped(situation, update, way)
    if vmi is None or not vmis.is_active(vmi):
        return _stopped(situation, replace(update, risky=changes_vm), way)
    running = revisions.templates.get(vmi_revision_of(vmi))
    if _step_between(running, current) is Step.RELABEL:
        return _stopped(situation, update, way)
    (change, obstacle), is_ready = change_of(situation, machine, current), vmis.is_ready(vmi)
    is_live, is_open = change is not Change.OTHER and not obstacle, change is Change.OPEN
    obstacle = NOT_KNOWN if is_live and is_open else obstacle
    update = replace(update, live=is_live, is_open=is_live and is_open, obstacle=obstacle, risky=not is_ready)
    update = replace(update, costly=is_ready and (is_open or not is_live))
    return _stopped(situation, update, way if is_live else Way.TEMPLATE)


def _recreation(situation: Situation, machine: Machine, *, begun: bool) -> PendingStep | None:
    """Return the step of a VM that needs new disks. KubeVirt creates them as soon as the VM's spec has new
    dataVolumeTemplates. So the spec stays as it is.
    """
    if not machine.should_run:
        return None
    vmi = machine.vmi
    ready = vmi is not None and vmis.is_active(vmi) and vmis.is_ready(vmi)
    step = PendingStep(machine=machine, step=Step.RECREATE, costly=ready, risky=not ready, begun=begun)
    return _stopped(situation, replace(step, lost_disks=own_disks_of(machine)), Way.RECREATION)


def _step_between(past: Template | None, current: Template) -> Step:
    """Return the step for a VMI that runs the template `past`, apart from the disks. `past` is None if the template is
    not known.
    """
    return Step.RELABEL if past is not None and past.machine == current.machine else Step.RESTART


def _claim_sizes(situation: Situation, machine: Machine, past: Template) -> Mapping[str, tuple[str, str]]:
    larger = larger_disks(past, situation.revisions.template)
    ordinal = situation.snapshot.ordinal_of(machine) if larger else None
    return {f"{name}-{ordinal}": (past.disk_sizes[name], size) for name, size in larger.items()}
