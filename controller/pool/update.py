"""From an older template to the current one: the VMs' specs (P12), then their VMIs (P13), a few at a time (P14)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
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
    is_meant_to_run,
    revision_of,
    template_labels_of,
    unready_since,
)
from controller.pool.indexing import encode_shape
from controller.pool.intent import Intent
from controller.pool.policies import Strategy
from controller.pool.revisions import Revisions, plan_revision
from controller.pool.rollout import count_unavailable, min_ready_of, partition_of
from controller.pool.scale import delete_of
from controller.pool.select import allows, in_order
from controller.pool.snapshot import Snapshot
from controller.runtime.plan import Delete, Patch, Plan, Stage, ThreeWayMerge
from informers.meta import labels_of
from informers.objects import PatchType


class Step(Enum):
    """What a VM that is up to date needs for its VMI to follow (P13)."""

    NOTHING = auto()
    RELABEL = auto()
    RESTART = auto()
    RECREATE = auto()


class Due(Struct, frozen=True):
    vm: VirtualMachine
    vmi: VirtualMachineInstance
    step: Step


def plan_update(
    snapshot: Snapshot,
    intent: Intent,
    revisions: Revisions,
    members: tuple[VirtualMachine, ...],
    *,
    going: Collection[str] = (),
) -> Plan:
    """Bring VMs to the current template. To be asked when the count is right. `going` are being deleted already."""
    if intent.update.strategy is Strategy.UNMANAGED:
        return Plan()
    partition = partition_of(snapshot)
    eligible = [
        vm
        for vm in members
        if not is_deleting(vm)
        and vm.metadata.uid not in going
        and allows(intent.update.selection, vm)
        and (ordinal := snapshot.ordinal_of(vm)) is not None
        and ordinal >= partition.number
    ]
    rebases = _rebases(snapshot, intent, revisions, eligible)
    # One VM that cannot be changed holds up nobody else.
    stages = (*plan_revision(snapshot, revisions), Stage(rebases, essential=False)) if rebases else ()
    specs = Plan(stages=stages, notices=partition.notices)
    if intent.update.strategy is Strategy.OPPORTUNISTIC:
        return specs
    restarts = _plan_restarts(snapshot, intent, revisions, members, eligible, going=going)
    return Plan(
        stages=specs.stages + restarts.stages,
        notices=specs.notices + restarts.notices,
        held=restarts.held,
        requeue_after_s=restarts.requeue_after_s,
    )


def is_updated(snapshot: Snapshot, revisions: Revisions, vm: VirtualMachine) -> bool:
    """Whether the VM and the VMI that it runs are on the current template."""
    vmi = snapshot.vmi_of(vm)
    on_current = revisions.is_current(revision_of(vm))
    return on_current and (vmi is None or revisions.is_current(vmi_revision_of(vmi)))


def vmi_revision_of(vmi: VirtualMachineInstance) -> str:
    return labels_of(vmi.metadata).get(REVISION_NAME, "")


def next_step(vm: VirtualMachine, vmi: VirtualMachineInstance, revisions: Revisions) -> Step:
    """What P13 asks for, by comparing the revision of the VM with that of its VMI."""
    wanted, running = revision_of(vm), vmi_revision_of(vmi)
    if not revisions.is_current(wanted) or wanted == running or not vmis.is_active(vmi):
        return Step.NOTHING
    current, past = revisions.template, revisions.templates.get(running)
    if past is not None and past.disks != current.disks:
        return Step.RECREATE
    if past is not None and past.machine == current.machine:
        return Step.RELABEL
    # Started anew it carries what the VM's own template says. Where that is what it has, a restart would change
    # nothing, and be asked for again and again.
    return Step.NOTHING if running == template_labels_of(vm).get(REVISION_NAME, "") else Step.RESTART


def _rebases(
    snapshot: Snapshot, intent: Intent, revisions: Revisions, eligible: Iterable[VirtualMachine]
) -> tuple[ThreeWayMerge, ...]:
    outdated = [vm for vm in eligible if not revisions.is_current(revision_of(vm))]
    outdated = in_order(snapshot, intent.update.selection, outdated)[: snapshot.limits.burst]
    return tuple(_rebase(snapshot, revisions, vm) for vm in outdated)


def _rebase(snapshot: Snapshot, revisions: Revisions, vm: VirtualMachine) -> ThreeWayMerge:
    ordinal, name = snapshot.ordinal_of(vm) or 0, revision_of(vm)
    past = revisions.templates.get(name)
    return ThreeWayMerge(
        resource=VMS,
        key=vm.metadata.key,
        uid=vm.metadata.uid,
        # Nobody knows any more what it was made from: then everything that the template says is new.
        old=encode_shape(past, ordinal, name) if past is not None else b"{}",
        new=encode_shape(revisions.template, ordinal, revisions.current),
        why=f"made from {name or 'no known revision'}, not from {revisions.current}",
    )


def _plan_restarts(
    snapshot: Snapshot,
    intent: Intent,
    revisions: Revisions,
    members: tuple[VirtualMachine, ...],
    eligible: list[VirtualMachine],
    *,
    going: Collection[str],
) -> Plan:
    """Let VMIs follow, so long as no more than `maxUnavailable` are missed. One that is not ready costs nothing."""
    due = _due(snapshot, intent, revisions, eligible)
    if not due:
        return Plan()
    min_ready, deadline = min_ready_of(snapshot), parse_deadline(snapshot.owner.metadata)
    staying = tuple(vm for vm in members if vm.metadata.uid not in going)
    missed = count_unavailable(snapshot, staying, min_ready.number)
    allowance = intent.most_unavailable - missed.unavailable - (len(members) - len(staying))
    chosen, waiting = _choose(due, allowance, most=snapshot.limits.burst)
    actions = tuple(_action(each) for each in chosen)
    soon = max((missed.next_at - snapshot.now).total_seconds(), 0.0) if waiting and missed.next_at else None
    progress = Plan(
        stages=(Stage(actions),) if actions else (),
        notices=min_ready.notices + deadline.notices,
        held=f"update: {waiting} virtual machines wait until more are ready" if waiting else "",
        requeue_after_s=soon,
    )
    if actions or not waiting:
        return progress
    stuck = [
        (since, vm.metadata.name)
        for vm in members
        if is_updated(snapshot, revisions, vm) and (since := _missed_since(snapshot, vm)) is not None
    ]
    return watch_progress(progress, stuck, deadline.after, now=snapshot.now, template=revisions.template.digest)


def _due(snapshot: Snapshot, intent: Intent, revisions: Revisions, eligible: list[VirtualMachine]) -> list[Due]:
    """Whoever needs something, in the order of the policy, but those that are broken anyway first."""
    due = []
    for vm in in_order(snapshot, intent.update.selection, eligible):
        vmi = snapshot.vmi_of(vm)
        step = Step.NOTHING if vmi is None else next_step(vm, vmi, revisions)
        # Nobody would start it anew: it takes the change when its user starts it.
        returns = step is Step.RELABEL or comes_back(vm, recreated=step is Step.RECREATE)
        if vmi is not None and step is not Step.NOTHING and returns:
            due.append(Due(vm, vmi, step))
    return sorted(due, key=lambda each: vmis.is_ready(each.vmi))


def _missed_since(snapshot: Snapshot, vm: VirtualMachine) -> datetime | None:
    """Since when a VM that should run does not; None where it does, or need not. Its VMI may never have appeared."""
    vmi = snapshot.vmi_of(vm)
    if is_deleting(vm) or not is_meant_to_run(vm) or (vmi is not None and vmis.is_ready(vmi)):
        return None
    if vmi is not None:
        return vmis.unready_since(vmi) or snapshot.now
    # It may have been down for long before: this template has not kept it waiting for longer than it exists.
    kept = [each.metadata.creation_timestamp for each in snapshot.revisions if each.metadata.name == revision_of(vm)]
    return max(filter(None, map(moment, (*kept, unready_since(vm)))), default=snapshot.now)


def _choose(due: list[Due], allowance: int, *, most: int) -> tuple[list[Due], int]:
    """Who goes now, and how many must wait for the allowance. A label is patched without anybody noticing."""
    going: list[Due] = []
    waiting = 0
    for each in due:
        free = each.step is Step.RELABEL or not vmis.is_ready(each.vmi)
        if len(going) >= most or (not free and allowance <= 0):
            waiting += 1
            continue
        if not free:
            allowance -= 1
        going.append(each)
    return going, waiting


def _action(due: Due) -> Delete | Patch:
    wanted = revision_of(due.vm)
    match due.step:
        case Step.RELABEL:
            metadata = {"uid": due.vmi.metadata.uid, "labels": {REVISION_NAME: wanted}}
            body = msgspec.json.encode({"metadata": metadata})
            why = "its part of the template is the same"
            return Patch(resource=VMIS, key=due.vmi.metadata.key, body=body, type=PatchType.MERGE, why=why)
        case Step.RECREATE:
            return delete_of(due.vm, f"its disks differ in {wanted}", foreground=True)
        case _:
            why = f"it runs an older template than {wanted}"
            return Delete(resource=VMIS, key=due.vmi.metadata.key, uid=due.vmi.metadata.uid, why=why)
