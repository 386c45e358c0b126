"""Updates to the current template: first the specs of the VMs (P12), then their VMIs (P13), within limits (P14)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum, auto

import msgspec
from msgspec import Struct

from controller.kubevirt import vmis
from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.progress import parse_deadline, watch_progress
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import (
    comes_back,
    is_deleting,
    revision_of,
    template_labels_of,
)
from controller.pool.indexing import encode_shape
from controller.pool.intent import Intent
from controller.pool.policies import Strategy
from controller.pool.revisions import Revisions, plan_revision
from controller.pool.rollout import count_unavailable, min_ready_of, partition_of
from controller.pool.scale import delete_of
from controller.pool.select import allows, in_order
from controller.pool.snapshot import Snapshot
from controller.pool.unready import down_since
from controller.runtime.plan import Delete, Patch, Plan, Stage, ThreeWayMerge
from informers.meta import labels_of
from informers.objects import PatchType


class Step(Enum):
    """The action that brings a VMI to the template of its updated VM (P13).

    RELABEL patches a label of the VMI. RESTART deletes the VMI. RECREATE deletes the VM.
    """

    NOTHING = auto()
    RELABEL = auto()
    RESTART = auto()
    RECREATE = auto()


class PendingStep(Struct, frozen=True):
    """A VM whose VMI needs an update step, and that step."""

    vm: VirtualMachine
    vmi: VirtualMachineInstance
    step: Step


def plan_update(
    snapshot: Snapshot,
    intent: Intent,
    revisions: Revisions,
    members: tuple[VirtualMachine, ...],
    *,
    deleted_uids: Collection[str] = (),
) -> Plan:
    """Plan the writes that bring VMs and VMIs to the current template.

    The caller checks first that the number of members is right. `deleted_uids` are the UIDs of the VMs that the same
    plan deletes in order to heal them. These VMs are not updated.
    """
    if intent.update.strategy is Strategy.UNMANAGED:
        return Plan()
    partition = partition_of(snapshot)
    eligible = [
        vm
        for vm in members
        if not is_deleting(vm)
        and vm.metadata.uid not in deleted_uids
        and allows(intent.update.selection, vm)
        and (ordinal := snapshot.ordinal_of(vm)) is not None
        and ordinal >= partition.number
    ]
    merges = _spec_updates(snapshot, intent, revisions, eligible)
    # The stage is not essential: a VM that cannot be patched must not delay other VMs.
    stages = (*plan_revision(snapshot, revisions), Stage(merges, essential=False)) if merges else ()
    spec_updates = Plan(stages=stages, notices=partition.notices)
    if intent.update.strategy is Strategy.OPPORTUNISTIC:
        return spec_updates
    restarts = _plan_restarts(snapshot, intent, revisions, members, eligible, deleted_uids=deleted_uids)
    return Plan(
        stages=spec_updates.stages + restarts.stages,
        notices=spec_updates.notices + restarts.notices,
        held=restarts.held,
        requeue_after_s=restarts.requeue_after_s,
    )


def is_updated(snapshot: Snapshot, revisions: Revisions, vm: VirtualMachine) -> bool:
    """Return True if the VM and its VMI have the current template. If the VM has no VMI, only the VM is checked."""
    vmi = snapshot.vmi_of(vm)
    on_current = revisions.is_current(revision_of(vm))
    return on_current and (vmi is None or revisions.is_current(vmi_revision_of(vmi)))


def vmi_revision_of(vmi: VirtualMachineInstance) -> str:
    return labels_of(vmi.metadata).get(REVISION_NAME, "")


def next_step(vm: VirtualMachine, vmi: VirtualMachineInstance, revisions: Revisions) -> Step:
    """Return the step that the VMI needs. The step follows from the revisions of the VM and its VMI (P13)."""
    wanted, running = revision_of(vm), vmi_revision_of(vmi)
    if not revisions.is_current(wanted) or wanted == running or not vmis.is_active(vmi):
        return Step.NOTHING
    current, past = revisions.template, revisions.templates.get(running)
    if past is not None and past.disks != current.disks:
        return Step.RECREATE
    if past is not None and past.machine == current.machine:
        return Step.RELABEL
    # A restarted VMI gets the revision label from the VM's template. If the VMI already has this label, a restart would
    # change nothing, and every pass would restart the VMI again.
    return Step.NOTHING if running == template_labels_of(vm).get(REVISION_NAME, "") else Step.RESTART


def _spec_updates(
    snapshot: Snapshot, intent: Intent, revisions: Revisions, eligible: Iterable[VirtualMachine]
) -> tuple[ThreeWayMerge, ...]:
    """Return the merges that bring outdated VMs to the current template.

    The merges are in the order of the sort policy. One pass makes at most `burst` merges.
    """
    outdated = [vm for vm in eligible if not revisions.is_current(revision_of(vm))]
    outdated = in_order(snapshot, intent.update.selection, outdated)[: snapshot.limits.burst]
    return tuple(_spec_update(snapshot, revisions, vm) for vm in outdated)


def _spec_update(snapshot: Snapshot, revisions: Revisions, vm: VirtualMachine) -> ThreeWayMerge:
    ordinal, name = snapshot.ordinal_of(vm) or 0, revision_of(vm)
    past = revisions.templates.get(name)
    return ThreeWayMerge(
        resource=VMS,
        key=vm.metadata.key,
        uid=vm.metadata.uid,
        # If the VM's revision is unknown, the merge sets every field of the new template.
        old=encode_shape(past, ordinal, name) if past is not None else b"{}",
        new=encode_shape(revisions.template, ordinal, revisions.current),
        why=f"its revision is {name or 'not known'}, the current revision is {revisions.current}",
    )


def _plan_restarts(
    snapshot: Snapshot,
    intent: Intent,
    revisions: Revisions,
    members: tuple[VirtualMachine, ...],
    eligible: list[VirtualMachine],
    *,
    deleted_uids: Collection[str],
) -> Plan:
    """Plan the updates of VMIs, but make no more than `maxUnavailable` members unavailable.

    The update of a VMI that is not ready does not count towards this limit.
    """
    pending = _pending_steps(snapshot, intent, revisions, eligible)
    if not pending:
        return Plan()
    min_ready, deadline = min_ready_of(snapshot), parse_deadline(snapshot.owner.metadata)
    staying = tuple(vm for vm in members if vm.metadata.uid not in deleted_uids)
    availability = count_unavailable(snapshot, staying, min_ready.number)
    allowance = intent.most_unavailable - availability.unavailable - (len(members) - len(staying))
    chosen, waiting = _choose(pending, allowance, burst=snapshot.limits.burst)
    actions = tuple(_action(each) for each in chosen)
    next_at = availability.next_at if waiting else None
    progress = Plan(
        stages=(Stage(actions),) if actions else (),
        notices=min_ready.notices + deadline.notices,
        held=f"update: {waiting} virtual machines wait until more are ready" if waiting else "",
        requeue_after_s=max((next_at - snapshot.now).total_seconds(), 0.0) if next_at else None,
    )
    if actions or not waiting:
        return progress
    stuck = [
        (since, vm.metadata.name)
        for vm in members
        if is_updated(snapshot, revisions, vm) and (since := down_since(snapshot, vm)) is not None
    ]
    return watch_progress(progress, stuck, deadline.after, now=snapshot.now, template=revisions.template.digest)


def _pending_steps(
    snapshot: Snapshot, intent: Intent, revisions: Revisions, eligible: list[VirtualMachine]
) -> list[PendingStep]:
    """Return the members that need an update step.

    Members whose VMI is not ready come first. Within both groups, the sort policy decides the order.
    """
    pending = []
    for vm in in_order(snapshot, intent.update.selection, eligible):
        vmi = snapshot.vmi_of(vm)
        step = Step.NOTHING if vmi is None else next_step(vm, vmi, revisions)
        # If the run strategy does not start the VM again, the VM gets the change when a user starts the VM.
        restarts = step is Step.RELABEL or comes_back(vm, recreated=step is Step.RECREATE)
        if vmi is not None and step is not Step.NOTHING and restarts:
            pending.append(PendingStep(vm, vmi, step))
    return sorted(pending, key=lambda each: vmis.is_ready(each.vmi))


def _choose(pending: list[PendingStep], allowance: int, *, burst: int) -> tuple[list[PendingStep], int]:
    """Return the steps of this pass, and the number of steps that must wait.

    `allowance` is the number of ready VMs that may become unavailable. A step that only changes a label makes no VM
    unavailable.
    """
    chosen: list[PendingStep] = []
    waiting = 0
    for each in pending:
        costs_nothing = each.step is Step.RELABEL or not vmis.is_ready(each.vmi)
        if len(chosen) >= burst or (not costs_nothing and allowance <= 0):
            waiting += 1
            continue
        if not costs_nothing:
            allowance -= 1
        chosen.append(each)
    return chosen, waiting


def _action(pending: PendingStep) -> Delete | Patch:
    revision, vmi = revision_of(pending.vm), pending.vmi.metadata
    match pending.step:
        case Step.RELABEL:
            body = msgspec.json.encode({"metadata": {"uid": vmi.uid, "labels": {REVISION_NAME: revision}}})
            why = "the VMI template did not change"
            return Patch(resource=VMIS, key=vmi.key, body=body, type=PatchType.MERGE, why=why)
        case Step.RECREATE:
            return delete_of(pending.vm, f"its dataVolumeTemplates differ in {revision}", foreground=True)
        case _:
            return Delete(resource=VMIS, key=vmi.key, uid=vmi.uid, why=f"it runs an older template than {revision}")
