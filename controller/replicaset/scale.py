"""As many active VMIs as are wanted: creates (R4, R5) and deletes (R6), and what is spent is cleared away (R7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from msgspec import Struct

from controller.apimachinery.names import free_suffixes
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import PROTECT, is_marked
from controller.kubevirt.costs import malformed_costs
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_final, is_spent, phase_of
from controller.replicaset.intent import Intent
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import encode_template
from controller.runtime.plan import Create, Delete, Notice, Plan, Stage
from informers.meta import ObjectKey


class ActiveAndSpent(Struct, frozen=True):
    """VMIs that are not being deleted: those that count, and those that give way to a replacement (R3)."""

    active: tuple[VirtualMachineInstance, ...]
    spent: tuple[VirtualMachineInstance, ...]


def take_census(vmis: Iterable[VirtualMachineInstance]) -> ActiveAndSpent:
    active: list[VirtualMachineInstance] = []
    spent: list[VirtualMachineInstance] = []
    for vmi in vmis:
        if vmi.metadata.deletion_timestamp is None:
            (spent if is_spent(vmi) else active).append(vmi)
    return ActiveAndSpent(tuple(active), tuple(spent))


def plan_scale(
    snapshot: Snapshot, intent: Intent, active: tuple[VirtualMachineInstance, ...], *, newcomers: Collection[str] = ()
) -> Plan:
    """Bring the number of active VMIs to what is wanted. `newcomers` are the UIDs that this same pass adopts."""
    missing = intent.wanted - len(active)
    if missing > 0:
        return _scale_out(snapshot, intent, missing)
    if missing < 0:
        return _scale_in(snapshot, intent, active, -missing, newcomers)
    return Plan()


def plan_cleanup(snapshot: Snapshot, spent: Iterable[VirtualMachineInstance], *, limit: int) -> Plan:
    """Delete what is final or unknown, at most `limit`; but nothing protected: somebody wants to look at it."""
    over = [vmi for vmi in spent if not is_marked(vmi.metadata, PROTECT)]
    over.sort(key=lambda vmi: (not is_final(vmi), vmi.metadata.name))
    deletes = tuple(
        delete_of(snapshot, vmi, f"finished: {phase_of(vmi)}" if is_final(vmi) else "unknown whether it still runs")
        for vmi in over[: max(limit, 0)]
    )
    return Plan(stages=(Stage(deletes, essential=False),) if deletes else ())


def delete_of(snapshot: Snapshot, vmi: VirtualMachineInstance, why: str) -> Delete:
    return Delete(resource=snapshot.vmis, key=vmi.metadata.key, uid=vmi.metadata.uid, why=why)


def _scale_out(snapshot: Snapshot, intent: Intent, missing: int) -> Plan:
    owner = snapshot.owner.metadata
    encoded = encode_template(
        intent.template, snapshot.vmis, owner.namespace, controller_reference(snapshot.replicasets, owner)
    )
    free = free_suffixes(encoded.base, owner.uid, taken=snapshot.taken)
    why = f"{intent.wanted - missing} of {intent.wanted} are active"
    creates = tuple(
        Create(
            resource=snapshot.vmis,
            key=ObjectKey(owner.namespace, encoded.base + suffix),
            body=encoded.body(suffix),
            owner_uid=owner.uid,
            why=why,
        )
        for suffix in islice(free, min(missing, snapshot.burst))
    )
    held = f"{missing - len(creates)} more creates wait for the next pass" if len(creates) < missing else ""
    return Plan(stages=(Stage(creates),), held=held)


def _scale_in(
    snapshot: Snapshot,
    intent: Intent,
    active: tuple[VirtualMachineInstance, ...],
    surplus: int,
    newcomers: Collection[str],
) -> Plan:
    ranked = rank_for_removal(active)
    victims = ranked[: min(surplus, snapshot.burst)]
    why = f"surplus: {len(active)} are active, {intent.wanted} wanted"
    # What is adopted in this pass is ranked with the rest, but it is not ours before the server has said so: if it
    # ranks among the first, it goes in the next pass, and nobody else goes in its place.
    deletes = tuple(delete_of(snapshot, vmi, why) for vmi in victims if vmi.metadata.uid not in newcomers)
    held, notices = "", malformed_costs(active)
    if surplus > len(ranked):
        held = f"{surplus - len(ranked)} more than wanted are protected"
        notices += (_kept_by_protection(snapshot, intent, surplus - len(ranked)),)
    elif len(deletes) < surplus:
        held = f"{surplus - len(deletes)} more deletes wait for the next pass"
    return Plan(stages=(Stage(deletes),) if deletes else (), notices=notices, held=held)


def _kept_by_protection(snapshot: Snapshot, intent: Intent, too_many: int) -> Notice:
    generation = snapshot.owner.metadata.generation
    return Notice(
        reason="ProtectedFromDeletion",
        message=f"{too_many} more virtual machines than the {intent.wanted} wanted stay: they are marked {PROTECT}",
        once=f"protected {generation} {intent.wanted}",
    )
