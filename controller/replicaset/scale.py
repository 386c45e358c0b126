"""Plans that create missing VMIs (R4, R5), delete surplus VMIs (R6) and delete spent VMIs (R7).

A VMI is spent if it has finished or if its state is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from controller.apimachinery.names import free_suffixes
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import EARLY_FAILURES, PROTECT, is_protected
from controller.kubevirt.delicate import reason_to_spare_vmi
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active, is_deleting, is_final, is_spent, phase_of
from controller.replicaset.back_off import Creates, annotation_of
from controller.replicaset.intent import Intent
from controller.replicaset.ranking import first_for_removal
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import EncodedTemplate, encode_template
from controller.replicaset.traits import VMIs, name_of
from controller.runtime.actions import Cause, Create, Delete, Notice, Plan, Stage, join
from informers.meta import NO_LABELS, ObjectKey

MAX_NOTICES: Final = 10
"""The maximum number of Events about spared VMIs in one reconciliation."""


class ActiveAndSpent(Struct, frozen=True):
    """The VMIs that are not being deleted, in two groups (R3).

    `active` VMIs count towards the wanted number of VMIs. `spent` VMIs do not count and will be deleted.
    """

    active: VMIs
    spent: VMIs


def split_active_and_spent(vmis: VMIs) -> ActiveAndSpent:
    """Return the active VMIs, and the spent VMIs (finished or unknown). The result contains no VMIs that are being
    deleted.
    """
    return ActiveAndSpent(vmis.where(is_active), vmis.where(lambda vmi: is_spent(vmi) and not is_deleting(vmi)))


def plan_scale(
    snapshot: Snapshot,
    intent: Intent,
    active: VMIs,
    creates: Creates,
    *,
    adopted_uids: Collection[str] = (),
) -> Plan:
    """Plan to create or delete VMIs, so that the number of active VMIs comes closer to the wanted number.

    One plan creates or deletes at most `snapshot.burst` VMIs. `creates` are the missing VMIs that may be created now
    (R4a). `adopted_uids` are the UIDs of the VMIs that the same reconciliation adopts. `active` contains these VMIs
    too.
    """
    missing = intent.wanted - len(active)
    if missing > 0:
        return _scale_out(snapshot, intent, creates, missing)
    if missing < 0:
        return _scale_in(snapshot, intent, active, -missing, adopted_uids)
    return Plan()


def plan_cleanup(snapshot: Snapshot, spent: Iterable[VirtualMachineInstance], *, limit: int) -> Plan:
    """Plan to delete at most `limit` spent VMIs (finished or unknown). Protected VMIs stay, so that users can inspect
    them. Paused and unreadable VMIs stay too.
    """
    unprotected = [vmi for vmi in spent if not is_protected(vmi.metadata)]
    deletable = [vmi for vmi in unprotected if not reason_to_spare_vmi(vmi)]
    spared = [vmi for vmi in unprotected if reason_to_spare_vmi(vmi)]
    deletable.sort(key=lambda vmi: (not is_final(vmi), vmi.metadata.name))
    deletes = tuple(
        delete_of(snapshot, vmi, f"finished: {phase_of(vmi)}" if is_final(vmi) else "its state is unknown")
        for vmi in deletable[: max(limit, 0)]
    )
    return join((Plan(stages=(Stage(deletes, essential=False),) if deletes else ()), hold_spared(spared)))


def hold_spared(spared: Collection[VirtualMachineInstance], cause: Cause = Cause.UNSPECIFIED) -> Plan:
    """Return a plan that says why these VMIs are not deleted now. `cause` is the cause of the deletes (`delete_of`)."""
    if not spared:
        return Plan()
    notices = (
        Notice(
            reason="UpdateHeld" if cause is Cause.UPDATE else "ScaleInHeld",
            message=f"virtual machine {vmi.metadata.name} is not deleted now: {reason_to_spare_vmi(vmi)}",
            once=f"{vmi.metadata.uid} {reason_to_spare_vmi(vmi)}",
        )
        for vmi in sorted(spared, key=name_of)[:MAX_NOTICES]
    )
    return Plan(held=f"{len(spared)} VMIs are not deleted while they are paused or unreadable", notices=tuple(notices))


def delete_of(
    snapshot: Snapshot,
    vmi: VirtualMachineInstance,
    why: str,
    *,
    cause: Cause = Cause.UNSPECIFIED,
    successor: bytes = b"",
) -> Delete:
    """Return the action that deletes the VMI.

    A scale-in or clean-up has no `cause`, and deletes the VMI also if it has changed. The reason of any other delete
    depends on the state of the VMI. So if the VMI has changed, it is not deleted, and a new plan judges it again.
    """
    meta, owner_uid = vmi.metadata, snapshot.owner.metadata.uid
    return Delete(
        resource=snapshot.vmis,
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        owner_uid="" if cause else owner_uid,
        why=why,
        cause=cause,
        successor=successor,
    )


def successor_of(snapshot: Snapshot, intent: Intent) -> bytes:
    """Return an encoded VMI such as the set creates after the deletion of an outdated VMI."""
    (create,) = creates_of(snapshot, intent, Creates(fresh=1), "")
    return create.body


def creates_of(snapshot: Snapshot, intent: Intent, creates: Creates, why: str) -> tuple[Create, ...]:
    """Return the actions that create these VMIs. Each replacement of an early failure gets an annotation with its
    number of failures (R4a).
    """
    owner = snapshot.owner.metadata
    reference = controller_reference(snapshot.replicasets, owner)
    free = free_suffixes(intent.template.base, owner.uid, taken=snapshot.taken)

    def create(encoded: EncodedTemplate, reason: str) -> Create:
        suffix = next(free)
        key = ObjectKey(owner.namespace, encoded.base + suffix)
        return Create(resource=snapshot.vmis, key=key, body=encoded.body(suffix), owner_uid=owner.uid, why=reason)

    def encode(annotations: Mapping[str, str] = NO_LABELS) -> EncodedTemplate:
        return encode_template(intent.template, snapshot.vmis, owner.namespace, reference, annotations=annotations)

    actions = []
    for failure in creates.replaced:
        annotation = annotation_of(failure.failures, failure.since, snapshot.now)
        reason = f"replaces {failure.vmi.metadata.name}; failures in a row: {failure.failures}"
        actions.append(create(encode({EARLY_FAILURES: annotation}), reason))
    if creates.fresh:
        encoded = encode()
        actions += [create(encoded, why) for _ in range(creates.fresh)]
    return tuple(actions)


def _scale_out(snapshot: Snapshot, intent: Intent, creates: Creates, missing: int) -> Plan:
    why = f"{intent.wanted - missing} of {intent.wanted} wanted VMIs are active"
    actions = creates_of(snapshot, intent, creates, why)
    left = missing - creates.number - creates.waiting
    held = [f"{left} more creates wait for the next pass"] if left else []
    requeue_after_s = None
    if creates.waiting:
        held.append(f"back-off: {creates.waiting} creates wait, because VMIs of the template fail")
    if creates.next_at is not None:
        requeue_after_s = (creates.next_at - snapshot.now).total_seconds()
    return Plan(stages=(Stage(actions),) if actions else (), held="; ".join(held), requeue_after_s=requeue_after_s)


def _scale_in(
    snapshot: Snapshot,
    intent: Intent,
    active: VMIs,
    surplus: int,
    adopted_uids: Collection[str],
) -> Plan:
    deletable = len(active.where(lambda vmi: not is_protected(vmi.metadata)))
    spared = active.where(lambda vmi: bool(reason_to_spare_vmi(vmi)))
    chosen = first_for_removal(active, min(surplus, snapshot.burst + len(spared)))
    held_spared = hold_spared([vmi for vmi in chosen if reason_to_spare_vmi(vmi)])
    why = f"surplus: {len(active)} VMIs are active, {intent.wanted} are wanted"
    # The ranking includes the VMIs that this reconciliation adopts. The set does not own these VMIs until the server
    # has accepted the adoption. So if an adopted VMI is chosen, only the next reconciliation deletes it.
    leaving = [vmi for vmi in chosen if not reason_to_spare_vmi(vmi)][: snapshot.burst]
    deletes = tuple(delete_of(snapshot, vmi, why) for vmi in leaving if vmi.metadata.uid not in adopted_uids)
    held, notices = "", tuple[Notice, ...]()
    if surplus > deletable:
        held = f"{surplus - deletable} surplus VMIs are protected"
        notices = (_protected_notice(snapshot, intent, surplus - deletable),)
    elif len(deletes) < surplus and not held_spared.held:
        held = f"{surplus - len(deletes)} more deletes wait for the next pass"
    return join((Plan(stages=(Stage(deletes),) if deletes else (), notices=notices, held=held), held_spared))


def _protected_notice(snapshot: Snapshot, intent: Intent, protected: int) -> Notice:
    generation = snapshot.owner.metadata.generation
    return Notice(
        reason="ProtectedFromDeletion",
        message=f"{protected} surplus virtual machines stay ({intent.wanted} are wanted): they are marked {PROTECT}",
        once=f"protected {generation} {intent.wanted}",
    )
