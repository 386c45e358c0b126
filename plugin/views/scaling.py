"""What a new number of replicas would change: the VMs that leave or come, and what happens to disks.

The controller's own functions choose these VMs. Their input is a snapshot with the new number of replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kubevirt import vmis, vms
from controller.kubevirt.annotations import PROTECT, REMOVE, is_marked, is_protected
from controller.kubevirt.delicate import reason_to_keep, reason_to_spare_vmi
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import disk_names_of, has_finished
from controller.pool.leaving.claims import by_name, choose_claims
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.select import choose_for_removal
from controller.pool.members.situation import situation_of
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.scale import may_leave
from controller.pool.spec.intent import Intent as PoolIntent
from controller.pool.spec.intent import parse_intent as parse_pool
from controller.pool.spec.policies import Strategy
from controller.pool.substitutes import choose_leavers
from controller.replicas.draining import drain_time
from controller.replicas.settings import deletion_cost, spares_running
from controller.replicaset.intent import parse_intent as parse_set
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.replicaset.traits import group_vmis
from controller.runtime.actions import Create, Plan
from controller.runtime.members.groups import grouped
from informers.meta import ObjectMeta

LISTED = 10
"""The largest number of names in one line."""


class Leaving(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A VM that leaves, with the reason why it is among the first, or a VM that stays, with the reason."""

    name: str
    why: str = ""


class ScalePreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a new number of replicas. `held` says why the controller does not scale now. `drain` says how long
    the VMs that run may stay.
    """

    leaving: tuple[Leaving, ...] = ()
    staying: tuple[Leaving, ...] = ()
    creating: tuple[str, ...] = ()
    disks: str = ""
    drain: str = ""
    held: str = ""


def preview(snapshot: PoolSnapshot | SetSnapshot, replicas: int) -> ScalePreview:
    """Return what the controller would do if the object had this number of replicas."""
    if isinstance(snapshot, PoolSnapshot):
        return _of_pool(_with_replicas(snapshot, replicas))
    return _of_set(_with_replicas(snapshot, replicas))


def preview_lines(given: ScalePreview) -> list[str]:
    lines = []
    if given.leaving:
        line = f"would leave:  {_texts(given.leaving)}"
        lines.append(line + (f"     stays though next: {_texts(given.staying)}" if given.staying else ""))
    elif given.staying:
        lines.append(f"stays though next: {_texts(given.staying)}")
    if given.creating:
        lines.append(f"would create: {_listed(given.creating)}")
    if given.disks:
        lines.append(f"disks: {given.disks}")
    if given.drain:
        lines.append(f"drain: {given.drain}")
    if given.held:
        lines.append(f"held: {given.held}")
    return lines or ["would change nothing"]


def _with_replicas(snapshot: Any, replicas: int) -> Any:
    """Return the snapshot with another number of replicas.

    The generation is higher, because a write increases it too.
    """
    owner = snapshot.owner
    if owner.spec.replicas == replicas:
        return snapshot
    metadata = replace(owner.metadata, generation=(owner.metadata.generation or 0) + 1)
    changed = replace(owner, spec=replace(owner.spec, replicas=replicas), metadata=metadata)
    return replace(snapshot, owner=changed)


def _of_pool(snapshot: PoolSnapshot) -> ScalePreview:
    intent = parse_pool(snapshot.owner)
    plan = plan_pool(snapshot)
    if isinstance(intent, FieldError) or snapshot.owner.spec.paused:
        return ScalePreview(held=plan.held)
    kept = choose_claims(snapshot, intent).kept
    situation = situation_of(snapshot, intent, kept)
    staying, surplus, _ = choose_leavers(situation)
    if situation.surplus <= 0 or intent.scale_in.strategy is not Strategy.PROACTIVE:
        return ScalePreview(creating=_created(plan), held=plan.held)
    if not intent.replaces_finished:
        return _scale_in(snapshot, intent, staying, surplus)
    # Finished VMs leave before the scale-in chooses (P25).
    finished = by_name(staying.where(lambda each: has_finished(each.vm, each.vmi)))
    first = [each for each in finished if not reason_to_keep(each.vm, each.vmi, snapshot.now)][:surplus]
    others = staying.without({each.metadata.uid for each in first})
    rest = _scale_in(snapshot, intent, others, surplus - len(first))
    disks = _disks(snapshot, intent, [each.vm for each in first]) or rest.disks
    return replace(rest, leaving=(*_names((each, "finished") for each in first), *rest.leaving), disks=disks)


def _scale_in(snapshot: PoolSnapshot, intent: PoolIntent, staying: Machines, surplus: int) -> ScalePreview:
    staying = may_leave(intent, staying)
    candidates = choose_for_removal(snapshot, intent.scale_in.selection, staying)
    chosen = [each.vm for each in candidates.ranked[:surplus]]
    leaving = [vm for vm in chosen if vm.metadata.uid not in candidates.delicate]
    without_marks = grouped(map(_unprotected, staying), lambda each: each.metadata.name)
    unmarked = choose_for_removal(snapshot, intent.scale_in.selection, without_marks).ranked[:surplus]
    names = {each.metadata.name for each in unmarked}
    protected = [each for each in staying if is_protected(each.metadata) and each.metadata.name in names]
    delicate = [(vm, reason) for vm in chosen if (reason := candidates.delicate.get(vm.metadata.uid)) is not None]
    missing = surplus - len(candidates.ranked)
    return ScalePreview(
        leaving=_names((vm, _why(vm.metadata, vms.is_ready(vm))) for vm in leaving),
        staying=_names([*((each, PROTECT) for each in protected), *delicate]),
        disks=_disks(snapshot, intent, leaving),
        drain=_drain(snapshot.owner.metadata) if leaving else "",
        held=f"{missing} surplus virtual machines may not be deleted" if missing > 0 else "",
    )


def _of_set(snapshot: SetSnapshot) -> ScalePreview:
    intent = parse_set(snapshot.owner)
    plan = plan_set(snapshot)
    if isinstance(intent, FieldError) or snapshot.owner.spec.paused:
        return ScalePreview(held=plan.held)
    active = snapshot.members.where(vmis.is_active)
    surplus = len(active) - intent.wanted
    if surplus <= 0 or spares_running(snapshot.owner.metadata):
        return ScalePreview(creating=_created(plan), held=plan.held)
    now = snapshot.now
    chosen = rank_for_removal(active, now)[:surplus]
    spared = [(vmi, why) for vmi in chosen if (why := reason_to_spare_vmi(vmi, now))]
    leaving = [vmi for vmi in chosen if not reason_to_spare_vmi(vmi, now)]
    names = {vmi.metadata.name for vmi in rank_for_removal(group_vmis(map(_unprotected_vmi, active)), now)[:surplus]}
    stays = [vmi for vmi in active if is_protected(vmi.metadata) and vmi.metadata.name in names]
    missing = surplus - len(chosen)
    return ScalePreview(
        leaving=_names((each, _why(each.metadata, vmis.is_ready(each))) for each in leaving),
        staying=_names([*((each, PROTECT) for each in stays), *spared]),
        drain=_drain(snapshot.owner.metadata) if leaving else "",
        held=f"{missing} surplus VMIs are protected" if missing > 0 else "",
    )


def _drain(owner: ObjectMeta) -> str:
    time = drain_time(owner)
    return f"VMs that run leave when they have drained, after at most {time.total_seconds():.0f} s" if time else ""


def _names(reasons: Iterable[tuple[VirtualMachine | Machine | VirtualMachineInstance, str]]) -> tuple[Leaving, ...]:
    return tuple(Leaving(name=each.metadata.name, why=why) for each, why in reasons)


def _unprotected(machine: Machine) -> Machine:
    return replace(machine, vm=replace(machine.vm, metadata=_without_mark(machine.metadata)))


def _unprotected_vmi(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    return replace(vmi, metadata=_without_mark(vmi.metadata))


def _without_mark(meta: ObjectMeta) -> ObjectMeta:
    if not is_protected(meta):
        return meta
    return replace(meta, annotations={name: text for name, text in (meta.annotations or {}).items() if name != PROTECT})


def _created(plan: Plan) -> tuple[str, ...]:
    kinds = ("VirtualMachine", "VirtualMachineInstance")
    return tuple(
        action.key.name for action in plan.actions if isinstance(action, Create) and action.resource.kind in kinds
    )


def _why(meta: ObjectMeta, is_ready: bool) -> str:
    cost = deletion_cost(meta)
    texts = [
        REMOVE if is_marked(meta, REMOVE) else "",
        "" if is_ready else "not ready",
        f"deletion cost {cost}" if cost else "",
    ]
    return ", ".join(text for text in texts if text)


def _disks(snapshot: PoolSnapshot, intent: PoolIntent, leaving: Collection[VirtualMachine]) -> str:
    if not any(map(disk_names_of, leaving)):
        return ""
    if not intent.scale_in.preserve:
        return "deleted with their VMs"
    strategy = snapshot.owner.spec.scale_in_strategy
    block = getattr(strategy, intent.scale_in.strategy.value) if strategy is not None else None
    return f"kept (statePreservation {block.state_preservation})" if block is not None else "kept"


def _texts(machines: Iterable[Leaving]) -> str:
    return _listed(f"{each.name} ({each.why})" if each.why else each.name for each in machines)


def _listed(texts: Iterable[str]) -> str:
    every = list(texts)
    more = f", and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return ", ".join(every[:LISTED]) + more
