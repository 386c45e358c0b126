"""Plans that create missing VMIs (R4, R5), and delete surplus VMIs (R6), spent VMIs (R7) and unready VMIs (R4a).

`kubevirt.vmis.is_spent` says which VMIs are spent. A VMI that runs but is not ready is replaced after the time in
`vmherd.dev/replace-unready-after-seconds`, and counts as an early failure, so the delays grow. At most a quarter, or
one, is replaced at a time: a common cause does not restart all VMIs of a set.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.names import free_suffixes
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import EARLY_FAILURES, PROTECT, SCALE_IN, TEMPLATE_HASH, is_protected
from controller.kubevirt.busy import busy_reason, lasting
from controller.kubevirt.delicate import delicate_reason_of_vmi, reason_to_spare_vmi
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import (
    entered,
    has_terminating_pod,
    is_final,
    is_ready,
    is_running,
    phase_of,
    unready_since,
)
from controller.replicas.conditions import counted
from controller.replicas.draining import HEALING, guest_of_vmi, is_draining, must_drain
from controller.replicas.notes import MAX_NOTICES
from controller.replicaset.back_off import (
    Creates,
    EarlyFailure,
    annotation_of,
    delay_after,
    failing_since,
    kept_as_evidence,
    trial_of,
)
from controller.replicaset.ranking import first_for_removal
from controller.replicaset.situation import Situation
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import EncodedTemplate, encode_template, is_updated
from controller.replicaset.traits import VMIs, replaces_failure
from controller.runtime.actions import Cause, Create, Delete, Notice, Plan, Stage, join, stage_of, waiting
from controller.runtime.members.groups import by_name
from controller.runtime.waits import Wait, Why
from informers.meta import NO_LABELS, ObjectKey, controller_of

UNREADY_SHARE: Final = 4


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
    """Return the delete of the VMI. Its successor must keep the labels that make it one of the set. Only without a
    `cause` (scale-in), a VMI that has changed is deleted too.
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


def plan_unready(situation: Situation, *, limit: int) -> Plan:
    """Plan to replace at most `limit` VMIs that have not been ready for too long: first deletes, then creates."""
    now, after = situation.snapshot.now, situation.intent.settings.replace_unready_after
    if after is None:
        return Plan()
    unready = _unready_vmis(situation, after)
    overdue = [each for each in unready if each.due <= now]
    chosen = overdue[: max(min(_slots(situation, overdue), limit), 0)]
    number = len(overdue) - len(chosen)
    waits = counted(number, "VMI that is not ready waits", "VMIs that are not ready wait")
    next_times = [(each.due - now).total_seconds() for each in unready if each.due > now]
    return replace(
        waiting(f"{waits} for the replacements of others" if number else ""),
        stages=_stages(situation, chosen, int(after.total_seconds())) if chosen else (),
        requeue_after_s=min(next_times, default=None),
    )


def _unready_vmis(situation: Situation, after: timedelta) -> list[EarlyFailure]:
    """VMIs that drain, and then VMIs that replaced fewer failed VMIs, come first."""
    snapshot, active = situation.snapshot, situation.active
    found = []
    for vmi in active.where(lambda vmi: is_running(vmi) and not is_ready(vmi) and not is_protected(vmi.metadata)):
        if delicate_reason_of_vmi(vmi) or busy_reason(vmi, snapshot.now):
            continue
        if situation.intent.rolls_out and not is_updated(vmi, situation.template):
            continue  # The rollout replaces this VMI.
        failures = trial_of(vmi).failures + 1
        since = min(_unready_since(vmi) or snapshot.now, snapshot.now)
        due = since + after + delay_after(failures)
        found.append(EarlyFailure(vmi, failures, failing_since(vmi, snapshot.now), due))
    found.sort(key=lambda each: (not is_draining(each.vmi.metadata), each.failures, each.due, each.vmi.metadata.name))
    return found


def _unready_since(vmi: VirtualMachineInstance) -> datetime | None:
    """Return when the running VMI became unready, not before Running: KubeVirt changes the time until then."""
    started = entered(vmi, "Running") or with_timezone(vmi.metadata.creation_timestamp)
    times = [time for time in (started, unready_since(vmi)) if time is not None]
    return max(times, default=None)


def _slots(situation: Situation, overdue: list[EarlyFailure]) -> int:
    """Return the number of VMIs that may be replaced now. Each replacement that is not ready yet reduces the number."""
    overdue_uids = {each.vmi.metadata.uid for each in overdue}
    starting = sum(
        trial_of(vmi).failures > 0 and vmi.metadata.uid not in overdue_uids
        for vmi in situation.active.where(lambda vmi: replaces_failure(vmi) and not is_ready(vmi))
    )
    return max(situation.target.regular // UNREADY_SHARE, 1) - starting


def _stages(situation: Situation, chosen: list[EarlyFailure], seconds: int) -> tuple[Stage, ...]:
    snapshot, template = situation.snapshot, situation.template
    why = f"not ready for longer than {seconds} s"
    # A VMI that must drain first is not deleted yet (P26), so nothing replaces it.
    drain, selector = situation.intent.settings.drain, situation.intent.selector
    going = [each for each in chosen if not must_drain(drain, guest_of_vmi(selector, each.vmi), HEALING, snapshot.now)]
    missing = max(situation.missing + len(going), 0)
    replaced = tuple(each for each in going if is_updated(each.vmi, template))[:missing]
    fresh = min(len(going), missing) - len(replaced)
    creates = creates_of(situation, Creates(replaced, fresh), "replaces a VMI that was not ready")
    successor = creates[0].body if creates else b""
    kept = selector if creates else None
    deletes = (
        delete_of(snapshot, each.vmi, why, cause=Cause.HEALING, successor=successor, selector=kept) for each in chosen
    )
    return (*stage_of(deletes, essential=True), *stage_of(creates, essential=True))
