"""What a new number of replicas would change: the VMs that leave or come, and what happens to disks.

The controller's own functions choose these VMs. Their input is a snapshot with the new number of replicas.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.kubevirt import vmis, vms
from controller.kubevirt.annotations import PROTECT, REMOVE, is_marked, is_protected
from controller.kubevirt.delicate import delicate_reason, reason_to_spare_vmi
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import disk_names_of, has_finished
from controller.pool.healing.finished import plan_replacements
from controller.pool.leaving.claims import by_name
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.select import choose_for_removal
from controller.pool.members.situation import situation_of
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.scale import may_leave
from controller.pool.spec.intent import Intent as PoolIntent
from controller.pool.spec.policies import Strategy
from controller.pool.substitutes import choose_leavers
from controller.replicas.settings import deletion_cost, read_settings
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.situation import situation_of as set_situation
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.runtime.actions import Create, Plan
from controller.runtime.members.groups import Member, Members, one_by_one
from informers.meta import ObjectMeta, annotations_of

T = TypeVar("T", bound=Member)

LISTED = 10
"""The largest number of names in one line."""


class Leaving(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A VM that leaves, with the reason why it is among the first, or a VM that stays, with the reason."""

    name: str
    why: str = ""


class ScalePreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """`held` says why the controller does not scale now. `drain` says how long the VMs that run may stay."""

    leaving: tuple[Leaving, ...] = ()
    staying: tuple[Leaving, ...] = ()
    creating: tuple[str, ...] = ()
    disks: str = ""
    drain: str = ""
    held: str = ""


def preview(snapshot: PoolSnapshot | SetSnapshot) -> ScalePreview:
    """Return what the controller would do about the number of VMs of the object in the snapshot."""
    return _of_pool(snapshot) if isinstance(snapshot, PoolSnapshot) else _of_set(snapshot)


def with_replicas(snapshot: Any, replicas: int) -> Any:
    return with_owner(snapshot, replace(snapshot.owner, spec=replace(snapshot.owner.spec, replicas=replicas)))


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
    return lines


def with_owner(snapshot: Any, owner: Any) -> Any:
    """Return the snapshot with the new object. A write of another spec increases the generation."""
    before, meta = snapshot.owner, owner.metadata
    if owner.spec != before.spec and meta.generation == before.metadata.generation:
        owner = replace(owner, metadata=replace(meta, generation=(meta.generation or 0) + 1))
    return replace(snapshot, owner=owner)


def _of_pool(snapshot: PoolSnapshot) -> ScalePreview:
    situation, plan, now = situation_of(snapshot), plan_pool(snapshot), snapshot.now
    if isinstance(situation, FieldError) or snapshot.owner.spec.paused:
        return ScalePreview(held=plan.held)
    intent = situation.intent
    if situation.surplus <= 0 or intent.scale_in.strategy is not Strategy.PROACTIVE:
        return ScalePreview(creating=_created(plan), held=plan.held)
    # VMs that have finished or failed leave before the scale-in chooses (P15, P25).
    doomed = plan_replacements(situation).uids
    first = [each for each in by_name(situation.members) if each.metadata.uid in doomed]
    leaving = sorted(first, key=lambda each: not has_finished(each.vm, each.vmi))[: situation.surplus]
    staying, surplus, _ = choose_leavers(replace(situation, doomed=doomed))

    def rank(members: Machines) -> Sequence[Machine]:
        return choose_for_removal(snapshot, intent.scale_in.selection, may_leave(intent, members)).ranked

    def why(each: Machine) -> str:
        return _why(each.metadata, vms.is_ready(each.vm))

    def reason_of(each: Machine) -> str:
        return delicate_reason(each.vm, each.vmi, now)

    shown = _scale_in(snapshot, staying, max(surplus, 0), rank=rank, why=why, reason_of=reason_of)
    causes = ((each, "finished" if has_finished(each.vm, each.vmi) else "failed") for each in leaving)
    shown = replace(shown, leaving=(*_names(causes), *shown.leaving))
    names = {each.name for each in shown.leaving}
    gone = [each.vm for each in situation.members if each.metadata.name in names]
    return replace(shown, disks=_disks(snapshot, intent, gone))


def _of_set(snapshot: SetSnapshot) -> ScalePreview:
    situation, plan, now = set_situation(snapshot), plan_set(snapshot), snapshot.now
    if isinstance(situation, FieldError) or snapshot.owner.spec.paused:
        return ScalePreview(held=plan.held)
    if situation.missing >= 0 or situation.intent.settings.spares_running:
        return ScalePreview(creating=_created(plan), held=plan.held)
    return _scale_in(
        snapshot,
        situation.active,
        -situation.missing,
        rank=lambda members: rank_for_removal(members, now),
        why=lambda each: _why(each.metadata, vmis.is_ready(each)),
        reason_of=lambda each: reason_to_spare_vmi(each, now),
    )


def _scale_in(
    snapshot: Any,
    members: Members[T],
    surplus: int,
    *,
    rank: Callable[[Members[T]], Sequence[T]],
    why: Callable[[T], str],
    reason_of: Callable[[T], str],
) -> ScalePreview:
    """Return which of the members leave. `rank` returns those that may be deleted, in the order of deletion. `why` says
    why one is among the first, and `reason_of` says why it stays for now.
    """
    chosen = rank(members)[:surplus]
    unmarked = rank(one_by_one(map(_unprotected, members)))[:surplus]
    names = {each.metadata.name for each in unmarked}
    protected = [(each, PROTECT) for each in members if is_protected(each.metadata) and each.metadata.name in names]
    leaving = [(each, why(each)) for each in chosen if not reason_of(each)]
    held = [(each, reason) for each in chosen if (reason := reason_of(each))]
    missing = surplus - len(chosen)
    return ScalePreview(
        leaving=_names(leaving),
        staying=_names([*protected, *held]),
        drain=_drain(snapshot.owner.metadata) if leaving else "",
        held=f"{missing} surplus virtual machines may not be deleted" if missing > 0 else "",
    )


def _drain(owner: ObjectMeta) -> str:
    time = read_settings(owner).drain
    return f"VMs that run leave when they have drained, after at most {time.total_seconds():.0f} s" if time else ""


def _names(reasons: Iterable[tuple[Member, str]]) -> tuple[Leaving, ...]:
    return tuple(Leaving(name=each.metadata.name, why=why) for each, why in reasons)


def _unprotected(each: Any) -> Any:
    if isinstance(each, Machine):
        return replace(each, vm=_unprotected(each.vm))
    annotations = {name: text for name, text in annotations_of(each.metadata).items() if name != PROTECT}
    return replace(each, metadata=replace(each.metadata, annotations=annotations))


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
