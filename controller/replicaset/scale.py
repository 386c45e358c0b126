"""Plans that create missing VMIs (R4, R5), delete surplus VMIs (R6) and delete spent VMIs (R7).

`kubevirt.vmis.is_spent` says which VMIs are spent.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.names import free_suffixes
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import EARLY_FAILURES, PROTECT, SCALE_IN, TEMPLATE_HASH, is_protected
from controller.kubevirt.busy import lasting
from controller.kubevirt.delicate import reason_to_spare_vmi
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import has_terminating_pod, is_final, phase_of
from controller.replicas.conditions import counted
from controller.replicas.notes import MAX_NOTICES
from controller.replicaset.back_off import Creates, annotation_of, kept_as_evidence
from controller.replicaset.ranking import first_for_removal
from controller.replicaset.situation import Situation
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import EncodedTemplate, encode_template
from controller.replicaset.traits import VMIs
from controller.runtime.actions import Cause, Create, Delete, Notice, Plan, join, stage_of, waiting
from controller.runtime.members.groups import by_name
from controller.runtime.waits import Wait, Why
from informers.meta import NO_LABELS, ObjectKey, controller_of


def plan_scale(situation: Situation) -> Plan:
    """Plan at most `snapshot.burst` creates or deletes towards the wanted number of active VMIs."""
    if situation.missing > 0:
        return _scale_out(situation)
    return _scale_in(situation, -situation.missing) if situation.missing < 0 else Plan()


def plan_cleanup(situation: Situation, *, limit: int) -> Plan:
    """Plan to delete at most `limit` spent VMIs, but no evidence (R4a), and no protected or spared ones.

    One that has changed is judged again by a new plan, because the node of a lost VMI may have come back.
    """
    now = situation.snapshot.now
    evidence = kept_as_evidence(situation.back_off, situation.creates, situation.missing)
    unprotected = [
        vmi for vmi in situation.spent if vmi.metadata.uid not in evidence and not is_protected(vmi.metadata)
    ]
    deletable = [vmi for vmi in unprotected if not reason_to_spare_vmi(vmi, now)]
    spared = [vmi for vmi in unprotected if reason_to_spare_vmi(vmi, now)]
    deletable.sort(key=lambda vmi: (not is_final(vmi), vmi.metadata.name))
    deletes = tuple(
        replace(delete_of(situation.snapshot, vmi, _why_spent(vmi)), owner_uid="") for vmi in deletable[: max(limit, 0)]
    )
    return join((Plan(stages=stage_of(deletes)), hold_spared(spared, now)))


def _why_spent(vmi: VirtualMachineInstance) -> str:
    if is_final(vmi):
        return f"finished: {phase_of(vmi)}"
    return "its Pod is terminating" if has_terminating_pod(vmi) else "its state is unknown"


def hold_spared(spared: Collection[VirtualMachineInstance], now: datetime, cause: Cause = Cause.UNSPECIFIED) -> Plan:
    """Return a plan that says why these VMIs are not deleted now. `cause` is the cause of the deletes (`delete_of`)."""
    if not spared:
        return Plan()
    chosen = by_name(spared)
    reasons = [reason_to_spare_vmi(vmi, now) for vmi in chosen]
    notices = (
        Notice(
            reason="UpdateHeld" if cause is Cause.UPDATE else "ScaleInHeld",
            message=f"virtual machine {vmi.metadata.name} is not deleted now: {reason}",
            once=f"{vmi.metadata.uid} {lasting(reason)}",
        )
        for vmi, reason in islice(zip(chosen, reasons, strict=True), MAX_NOTICES)
    )
    names = tuple(vmi.metadata.name for vmi in chosen[:MAX_NOTICES])
    others = f", and {counted(len(spared) - 1, 'more VMI waits', 'more VMIs wait')}" if len(spared) > 1 else ""
    return replace(waiting(f"{names[0]} waits: {reasons[0]}{others}", Why.USER, names=names), notices=tuple(notices))


def delete_of(
    snapshot: Snapshot,
    vmi: VirtualMachineInstance,
    why: str,
    *,
    cause: Cause = Cause.UNSPECIFIED,
    successor: bytes = b"",
    selector: Selector | None = None,
) -> Delete:
    """Return the delete of the VMI. Its successor must keep the labels that make it one of the set.

    Without a `cause` (scale-in), a VMI that has changed is deleted too. Else a new plan judges it again.
    """
    meta, owner_uid = vmi.metadata, snapshot.owner.metadata.uid
    return Delete(
        resource=VMIS,
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        owner_uid="" if cause else owner_uid,
        why=why,
        cause=cause,
        successor=successor,
        kept=(TEMPLATE_HASH, *selector.needed) if selector is not None else (),
    )


def successor_of(situation: Situation) -> bytes:
    """Return an encoded VMI such as the set creates after the deletion of an outdated VMI."""
    (create,) = creates_of(situation, Creates(fresh=1), "")
    return create.body


def creates_of(situation: Situation, creates: Creates, why: str) -> tuple[Create, ...]:
    """Each replacement of an early failure gets an annotation with its number of failures (R4a)."""
    snapshot, template = situation.snapshot, situation.template
    owner = snapshot.owner.metadata
    reference = controller_reference(snapshot.replicasets, owner)
    free = free_suffixes(template.base, owner.uid, taken=snapshot.taken)

    def create(encoded: EncodedTemplate, reason: str, note: str = "") -> Create:
        suffix = next(free)
        key, body = ObjectKey(owner.namespace, encoded.base + suffix), encoded.body(suffix)
        return Create(resource=VMIS, key=key, body=body, owner_uid=owner.uid, why=reason, note=note)

    def encode(annotations: Mapping[str, str] = NO_LABELS) -> EncodedTemplate:
        return encode_template(template, owner.namespace, reference, annotations=annotations)

    actions = []
    for failure in creates.replaced:
        annotation = annotation_of(failure.failures, failure.since, snapshot.now)
        reason = f"replaces {failure.vmi.metadata.name}; failures in a row: {failure.failures}"
        actions.append(create(encode({EARLY_FAILURES: annotation}), reason, annotation))
    if creates.fresh:
        encoded = encode()
        actions += [create(encoded, why) for _ in range(creates.fresh)]
    return tuple(actions)


def _scale_out(situation: Situation) -> Plan:
    creates = situation.creates
    why = f"{len(situation.active)} of {situation.target.regular} wanted VMIs are active"
    if situation.target.surge:
        why += f", and the rolling update adds up to {situation.target.surge}"
    actions = creates_of(situation, creates, why)
    left = situation.missing - creates.number - creates.waiting
    held = [counted(left, "more create waits", "more creates wait") + " for the next pass"] if left else []
    requeue_after_s = None
    if creates.waiting:
        held.append(
            f"back-off: {counted(creates.waiting, 'create waits', 'creates wait')}, because VMIs of the template fail"
        )
    if creates.next_at is not None:
        requeue_after_s = (creates.next_at - situation.snapshot.now).total_seconds()
    # A surge that the server refuses does not stop the deletions that `maxUnavailable` allows.
    stages = stage_of(actions, essential=not situation.has_regular)
    return Plan(stages=stages, waits=tuple(Wait(text=each) for each in held), requeue_after_s=requeue_after_s)


def _scale_in(situation: Situation, surplus: int) -> Plan:
    if situation.intent.settings.spares_running:
        held = f"{surplus} surplus VMIs stay until they have finished: {SCALE_IN} keeps them"
        once = f"unfinished {situation.snapshot.owner.metadata.generation} {situation.target.regular}"
        return replace(waiting(held, Why.USER), notices=(Notice(reason="ScaleInHeld", message=held, once=once),))
    snapshot, active, now = situation.snapshot, situation.active, situation.snapshot.now
    deletable = len(active.where(lambda vmi: not is_protected(vmi.metadata)))
    spared = active.where(lambda vmi: bool(reason_to_spare_vmi(vmi, now)))
    chosen = first_for_removal(active, min(surplus, snapshot.burst + len(spared)), now)
    held_spared = hold_spared([vmi for vmi in chosen if reason_to_spare_vmi(vmi, now)], now)
    why = f"surplus: {len(active)} VMIs are active, {situation.target.wanted} are wanted"
    # The ranking includes the VMIs that this reconciliation adopts. The set does not own these VMIs until the server
    # has accepted the adoption. So if an adopted VMI is chosen, only the next reconciliation deletes it.
    leaving = [vmi for vmi in chosen if not reason_to_spare_vmi(vmi, now)][: snapshot.burst]
    deletes = tuple(delete_of(snapshot, vmi, why) for vmi in leaving if controller_of(vmi.metadata) is not None)
    waits = Plan()
    if surplus > deletable:
        waits = _held_by_protection(situation, surplus - deletable)
    elif len(deletes) < surplus and not held_spared.waits:
        waits = waiting(f"{surplus - len(deletes)} more deletes wait for the next pass")
    return join((Plan(stages=stage_of(deletes, essential=True)), waits, held_spared))


def _held_by_protection(situation: Situation, protected: int) -> Plan:
    generation, wanted = situation.snapshot.owner.metadata.generation, situation.target.regular
    held = wait_for_protected(situation.active, f"{protected} surplus VMIs are protected")
    notice = Notice(
        reason="ProtectedFromDeletion",
        message=f"{protected} surplus virtual machines stay ({wanted} are wanted): they are marked {PROTECT}",
        once=f"protected {generation} {wanted}",
    )
    return replace(held, notices=(notice,))


def wait_for_protected(vmis: VMIs, text: str, *, stall: str = "") -> Plan:
    """Return a plan that waits because some of these VMIs are protected (P20)."""
    protected = sorted(vmi.metadata.name for vmi in vmis.where(lambda vmi: is_protected(vmi.metadata)))
    if not protected:
        return Plan()
    return waiting(text, Why.PROTECTION, names=tuple(protected[:MAX_NOTICES]), stall=stall)
