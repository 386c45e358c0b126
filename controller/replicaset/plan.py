"""The plan of one reconciliation of a replica set: a pure function, so equal snapshots give equal plans.

The stages run in this order:

1. Adopt orphans and release members (R2). Before an adoption, check on the API server that the set still exists.
2. Create VMIs (R4) or delete VMIs (R6).
3. Delete spent VMIs (R7), which have finished, whose Pod is terminating or whose state is unknown.
4. If the number of VMIs is right, replace outdated VMIs (R14). A surge of this update may still be missing.
5. Replace VMIs that run but are not ready in time, if an annotation of the set contains the time limit (R4a).

First, the disruption budget is kept (P27), and VMIs that must drain are marked instead (P26). A missing revision of the
template is created (R17), and the template of members without a hash is noted (R14). If nothing is written, unused
revisions are deleted.

A paused set only notes this template, and adopts and releases VMIs (R8). A set that is being deleted, is invalid, or
waits for the cache has no stages, and the plan says why it is `held`.
"""

from functools import partial

from msgspec.structs import replace

from controller.apimachinery.field_error import INVALID_SPEC, FieldError
from controller.kubevirt.annotations import IN_SERVICE, is_protected
from controller.kubevirt.busy import ends_of_marks
from controller.kubevirt.delicate import reason_to_spare_vmi
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_ready
from controller.replicas.conditions import held_reason
from controller.replicas.disruption_budget import Numbers, with_budget
from controller.replicas.draining import SCALE_IN, UPDATE, drain_first, guest_of_vmi, is_draining
from controller.replicas.notes import plan_limit, undecodable_notices, wake_at
from controller.replicas.rollback import hold_return, plan_notes, plan_return
from controller.replicas.wrong_annotations import with_wrong_annotations
from controller.replicaset.back_off import message_of
from controller.replicaset.claims import plan_claims
from controller.replicaset.health import plan_progress, replaced_by_rollout
from controller.replicaset.revisions import plan_adopted_template, plan_pruning, plan_revision
from controller.replicaset.rollout import plan_left_out, plan_rollout, rollout_of
from controller.replicaset.scale import plan_cleanup, plan_scale, plan_unready
from controller.replicaset.situation import Situation, situation_of
from controller.replicaset.snapshot import Snapshot
from controller.runtime.actions import Cause, Delete, Notice, Plan, join, waiting
from controller.runtime.waits import Wait, Why


def plan(snapshot: Snapshot) -> Plan:
    wake = wake_at(ends_of_marks(*snapshot.members.traits(), now=snapshot.now), snapshot.now)
    return with_wrong_annotations(join((_plan(snapshot), wake)), snapshot.wrong_annotations)


def _plan(snapshot: Snapshot) -> Plan:
    owner = snapshot.owner
    if owner.metadata.deletion_timestamp is not None:
        return waiting("being deleted")
    situation = situation_of(snapshot)
    if isinstance(situation, FieldError):
        message = situation.message
        notice = Notice(reason=INVALID_SPEC, message=message, once=f"generation-{owner.metadata.generation}")
        return replace(waiting(f"invalid: {message}", Why.USER), notices=(notice,))
    if not snapshot.settled:
        return waiting("the cache does not show all of our own writes yet")
    if owner.spec.paused:
        parts = (plan_adopted_template(situation), plan_claims(snapshot, situation.intent.selector, situation.claims))
        return replace(join(parts), waits=(Wait(text="paused", why=Why.CHOICE),))
    return _plan_changes(situation)


def _plan_changes(situation: Situation) -> Plan:
    snapshot, intent, claims = situation.snapshot, situation.intent, situation.claims
    shown, stranded = rollout_of(situation), situation.target.stranded
    if stranded:
        return hold_return(stranded)
    returning = plan_return(shown, snapshot.now)
    # The order of the deletes needs all VMIs. So while some orphans are not adopted, no VMI is deleted.
    scaling = waiting("scale-in waits for the adoption of orphans")
    may_scale = situation.missing >= 0 or len(claims.adopted) <= snapshot.burst
    if may_scale:
        scaling = plan_scale(situation)
    limit = snapshot.burst - _deletes_of(scaling)
    cleanup = plan_cleanup(situation, limit=limit)
    parts = [
        returning,
        plan_adopted_template(situation),
        plan_revision(situation),
        plan_claims(snapshot, intent.selector, claims),
        scaling,
        cleanup,
        _back_off_notice(situation),
        plan_left_out(situation),
        plan_limit(snapshot.owner.metadata, intent.replicas, len(situation.active), snapshot.max_replicas),
        Plan(notices=undecodable_notices(claims.kept.where(lambda vmi: bool(vmi.undecodable)), snapshot.now)),
        plan_progress(situation),
    ]
    is_surge = situation.missing > 0 and situation.has_regular
    may_change = not claims.adopted and not claims.releases.now and (is_surge or not scaling.stages)
    rolls_out = may_change and not returning.stages
    if may_change:
        limit -= _deletes_of(cleanup)
        rollout = Plan()
        if rolls_out:
            rollout = plan_rollout(situation, limit=limit)
            parts += [plan_notes(shown, snapshot.now), _unless_limited(situation, rollout, Cause.UPDATE)]
        if not scaling.stages:
            unready = plan_unready(situation, limit=limit - _deletes_of(rollout))
            parts.append(_unless_limited(situation, unready, Cause.HEALING))
    if not any(part.stages for part in parts):
        parts.append(plan_pruning(situation))
    whole = join(parts)
    is_replaced = replaced_by_rollout(situation)
    guest_of = partial(guest_of_vmi, intent.selector)

    def still_leaves(vmi: VirtualMachineInstance, cause: str) -> bool:
        if cause == SCALE_IN:
            return not may_scale
        if cause == UPDATE:  # If the rollout leaves out a VMI that drains, its turn is over.
            lasts = is_replaced(vmi) and not (rolls_out and situation.has_regular)
        else:
            lasts = not (is_ready(vmi) or is_protected(vmi.metadata))
        return lasts and not reason_to_spare_vmi(vmi, snapshot.now)

    drain, active, labels = intent.settings.drain, situation.active, intent.template.labels
    is_served = labels.get(IN_SERVICE) == "true"

    def has_mark(vmi: VirtualMachineInstance) -> bool:
        return is_draining(vmi.metadata) or (is_served and guest_of(vmi).is_marked)

    whole = drain_first(whole, drain, active, guest_of, still_leaves=still_leaves, now=snapshot.now, has_mark=has_mark)
    return with_budget(whole, snapshot, intent.settings, labels, lambda: Numbers(situation.target.kept, len(active)))


def _unless_limited(situation: Situation, part: Plan, cause: Cause) -> Plan:
    """Hold the plan, whose deletes have this `cause`, if the limit would let no replaced VMI come back (P20)."""
    owner, most, active = situation.snapshot.owner, situation.snapshot.max_replicas, len(situation.active)
    if not part.stages or not 0 < most < active:
        return part
    held = f"no VMI is replaced: {active} are active, and --max-replicas {most} would not let a new one in"
    notice = Notice(reason=held_reason(cause), message=held, once=f"limit {most} {owner.metadata.generation}")
    return replace(waiting(held, Why.USER), notices=(notice,), requeue_after_s=part.requeue_after_s)


def _back_off_notice(situation: Situation) -> Plan:
    """Return a notice if failing VMIs delay the creation of VMIs, once for each series of failures (R4a)."""
    back_off = situation.back_off
    if not situation.creates.waiting or not back_off.failures:
        return Plan()
    once = f"back-off {situation.template.hash} {back_off.since:%Y-%m-%dT%H:%M:%S}"
    return Plan(notices=(Notice(reason="BackOff", message=message_of(back_off.failures[0]), once=once),))


def _deletes_of(part: Plan) -> int:
    return sum(isinstance(action, Delete) for action in part.actions)
