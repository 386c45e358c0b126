"""The plan of one reconciliation of a pool.

`plan` is a pure function. It returns a plan for every snapshot, and always the same plan for the same snapshot. If
nothing has to change, the plan is empty. The stages do these steps, in this order:

1. They remove the pool finalizer from VMs that leave. They add the finalizer to members whose disks must be kept, or
   remove it from members whose disks need not be kept. They release members (P2, P6, P9, P10). A member is a VM that
   the pool controls.
2. They add the finalizer to the pool (P6).
3. They heal VMs (P15) and replace finished VMs (P25).
4. They create or delete VMs (P3, P4, P8), with substitutes for lost VMs (P28).
5. They update VMs (P12 to P14), if no member is released and step 4 does nothing. There is one exception: if the server
   rejects new VMs, for example because of a quota, the update does not wait for the missing members.
6. They delete old revisions (P11), if no other step writes anything.

VMs that must drain before they leave are marked instead, before all these steps (P26). The disruption budget is kept
before that (P27).

If the pool is invalid or paused, the plan only removes the pool finalizer from VMs that leave. So users can still
delete VMs. If the pool is paused, the plan also corrects the finalizers of members. If the caches do not show all
earlier writes for this pool, the plan contains no writes.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from msgspec.structs import replace

from controller.apimachinery.field_error import INVALID_SPEC, FieldError
from controller.kubevirt.annotations import PARTITION_REVISION
from controller.kubevirt.live_updates import is_seen
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vms import is_deleting, revision_of, stopped_by
from controller.pool.claimed import plan_claimed
from controller.pool.healing.downtime_note import plan_unready_note
from controller.pool.healing.heal import plan_replacements
from controller.pool.health import plan_progress
from controller.pool.leaving.claims import plan_finalizer_removals, plan_member_finalizers, plan_releases
from controller.pool.leaving.deletion import plan_deletion, plan_own_finalizer
from controller.pool.members.machine import Machine, Machines, ends_of_work, guest_of, has_drain_mark
from controller.pool.members.revisions import plan_pruning, plan_revision, ready_revisions
from controller.pool.members.situation import Situation, situation_of
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.brake import is_taken_over, plan_first_mark, plan_takeover
from controller.pool.rollout.left_out import plan_left_out
from controller.pool.rollout.migrations import plan_migrations
from controller.pool.rollout.partition_steps import plan_partition_note, plan_partition_step
from controller.pool.rollout.rollback import rollout_of
from controller.pool.rollout.steps import Step, pending_step
from controller.pool.rollout.successors import count_missing
from controller.pool.rollout.update import pending_steps, plan_update
from controller.pool.scale import is_scale_out_refused, plan_new_standbys, plan_scale, unowned_vms, waits_for_adoption
from controller.pool.spec.intent import Intent
from controller.pool.standby import lay_to_rest, plan_standby, ready_standbys
from controller.pool.substitutes import plan_lost, plan_marks
from controller.replicas.conditions import counted
from controller.replicas.disruption_budget import Numbers, with_budget
from controller.replicas.draining import HEALING, UPDATE, drain_first
from controller.replicas.notes import MAX_NOTICES, plan_limit, undecodable_notices, wake_at
from controller.replicas.releases import plan_row
from controller.replicas.revisions import roll_out_again
from controller.replicas.rollback import hold_return, plan_notes, plan_return
from controller.replicas.wrong_annotations import with_wrong_annotations
from controller.runtime.actions import Create, Notice, Plan, ThreeWayMerge, join, waiting
from controller.runtime.members.groups import by_name
from controller.runtime.waits import Why
from informers.meta import annotations_of

UNSETTLED = waiting("the cache does not show all of our own writes yet")


def plan(snapshot: Snapshot) -> Plan:
    wake = wake_at(ends_of_work(snapshot.members, snapshot.now), snapshot.now)
    return with_wrong_annotations(join((_plan(snapshot), wake)), snapshot.wrong_annotations)


def _plan(snapshot: Snapshot) -> Plan:
    owner = snapshot.owner
    if owner.metadata.deletion_timestamp is not None:
        return plan_deletion(snapshot) if snapshot.settled else UNSETTLED
    situation = situation_of(snapshot)
    if isinstance(situation, FieldError):
        message = situation.message
        notice = Notice(reason=INVALID_SPEC, message=message, once=f"generation-{owner.metadata.generation}")
        held = replace(waiting(f"invalid: {message}", Why.USER), notices=(notice,))
        return join([plan_finalizer_removals(snapshot), held])
    if owner.spec.paused:
        may_remove = is_taken_over(situation, situation.intent.template)
        finalizers = plan_member_finalizers(snapshot, snapshot.members, may_remove=may_remove)
        return join([plan_finalizer_removals(snapshot), finalizers, waiting("paused", Why.CHOICE)])
    return _plan_active(situation) if snapshot.settled else UNSETTLED


def _plan_active(situation: Situation) -> Plan:
    """Return the plan for a valid pool that is neither paused nor being deleted, if the caches show all earlier writes
    for it.
    """
    snapshot, intent, claims = situation.snapshot, situation.intent, situation.claims
    shown, stranded = rollout_of(situation), situation.target.stranded
    if stranded:
        return join([plan_finalizer_removals(snapshot), hold_return(stranded)])
    returning = plan_return(shown, snapshot.now)
    healing = plan_replacements(situation)
    after_healing = replace(situation, doomed=healing.uids)
    scaling = plan_scale(after_healing)
    may_update = not (claims.released or returning.stages) and _scaling_allows_update(situation, scaling)
    departures = plan_finalizer_removals(snapshot)
    steps = (
        returning,
        plan_row(snapshot.pools, situation.pool, claims.releases, intent.selector, snapshot.now),
        plan_releases(snapshot, claims.released),
        plan_own_finalizer(snapshot),
        plan_first_mark(situation),
        Plan() if returning.stages else plan_partition_note(situation),
        plan_partition_step(after_healing) if may_update else Plan(),
        plan_unready_note(situation),
        plan_progress(situation),
        plan_lost(situation),
        plan_marks(after_healing),
        Plan(notices=_undecodable_notices(situation)),
        _plan_stopped(situation.members),
        plan_left_out(situation, situation.revisions_of_spec()),
        wake_at((each.until for each in snapshot.refused.values()), snapshot.now),
        healing.plan,
        plan_claimed(situation),
        scaling,
        Plan() if returning.stages else plan_notes(shown, snapshot.now),
        _plan_update(after_healing) if may_update else Plan(),
        plan_migrations(after_healing, may_start=may_update),
        plan_standby(after_healing),
    )
    staying = claims.kept + claims.young + claims.claimed + claims.standby
    # While a takeover waits for the user, no finalizer is removed from VMs that stay.
    may_remove = is_taken_over(situation, intent.template)
    finalizers = plan_member_finalizers(snapshot, staying, may_remove=may_remove, others=(departures, *steps))
    # Disks are safe as early as possible, so the finalizers come first. A failed create does not skip them.
    writes = join((departures, finalizers, *steps))
    # New standbys come last, because other VMs may need the room (P32).
    writes = writes if writes.stages else join((writes, plan_new_standbys(after_healing)))
    revisions = _plan_revisions(situation, writes, prunes=may_update and not writes.stages)
    limit = plan_limit(situation.pool, intent.replicas, len(snapshot.members), snapshot.limits.max_replicas)
    # After a return, the template of the spec keeps the newest number (P29).
    is_return, current = situation.target.rejected is not None, situation.revisions.current
    ready = ready_revisions(snapshot)
    number = () if is_return else roll_out_again(snapshot.owner, snapshot.revisions, current, snapshot.now, ready)
    # The number comes first: VMs may get the template, and then the process may end.
    whole = join((Plan(stages=number), writes, revisions, limit, *_plan_advice(intent)))
    members, drain = situation.members + situation.claimed, intent.settings.drain
    changed = {each.uid for each in whole.actions if isinstance(each, ThreeWayMerge)}
    still_leaves = partial(_still_leaves, situation, {HEALING: healing.due, UPDATE: changed}, may_update)
    whole = drain_first(
        whole, drain, members, guest_of, still_leaves=still_leaves, now=snapshot.now, has_mark=has_drain_mark
    )
    whole = lay_to_rest(situation, whole, scaling)

    def count() -> Numbers:
        standbys, stopped = ready_standbys(situation), members.where(lambda each: not each.should_run)
        kept = situation.target.kept + len(situation.claimed)
        return Numbers(kept + standbys, len(members) + standbys, len(stopped))

    return with_budget(whole, snapshot, intent.settings, intent.template.machine_labels, count)


def _still_leaves(
    situation: Situation, due: Mapping[str, Collection[str]], may_update: bool, machine: Machine, cause: str
) -> bool:
    """Return True if a VM that drains because of an update or healing only waits for its turn (P26). `due` are the UIDs
    of the VMs that healing deletes as soon as their turn comes, and of those that get another template before their
    restart. If the plan may update VMs and leaves out this one, its turn is over. Until KubeVirt has seen a label that
    the drain has written into the spec, it has no verdict about the change. Its verdict about an open change counts
    only a moment later.
    """
    is_due = machine.metadata.uid in due.get(cause, ())
    if cause != UPDATE:
        return is_due
    if not situation.may_update(machine) or not situation.is_above_partition(machine):
        return False
    step = pending_step(situation, machine)
    if step is not None and step.step is Step.LIVE and (not is_seen(machine.vm) or (step.is_open and step.due)):
        return True
    return (is_due or not may_update) and step is not None and step.interrupts


def _scaling_allows_update(situation: Situation, scaling: Plan) -> bool:
    """Return True if the number of VMs does not block an update.

    While VMs are created or deleted, the update waits, unless the server refuses the creates. If there are surplus VMs
    and a VM is terminating, a scale-in is still running. If no VM is terminating, surplus VMs do not block an update,
    because the scale-in policy may keep them (P8, P9).
    """
    if unowned_vms(situation):
        return False
    if scaling.stages:
        return is_scale_out_refused(situation)
    members = situation.members
    return len(members) <= situation.target.wanted or not members.some(lambda each: is_deleting(each.vm))


def _plan_update(situation: Situation) -> Plan:
    """Plan the update of the VMs that exist. If VMs are missing here, the server refuses to create them."""
    existing = _without_missing(situation) if is_scale_out_refused(situation) else situation
    pending = pending_steps(existing)
    return plan_takeover(existing, plan_update(existing, pending, missing=count_missing(situation)), pending)


def _without_missing(situation: Situation) -> Situation:
    """Return the situation of a pool that wants only its present VMs. The scale-out of the same plan creates a missing
    revision.
    """
    number, target = len(situation.members), situation.target
    substitutes = max(target.substitutes - (target.wanted - number), 0)
    target = replace(target, replicas=number - substitutes, limit=0, young=0, substitutes=substitutes)
    return replace(situation, target=target, revisions=replace(situation.revisions, current_exists=True))


def _plan_revisions(situation: Situation, writes: Plan, *, prunes: bool) -> Plan:
    """Plan the creation of the present revision, also before a VM gets it, so that an undo knows it. The `writes` may
    do so already, or take long, as a scale-in that drains. With `prunes`, plan the deletion of unused revisions.
    """
    snapshot, revisions, intent = situation.snapshot, situation.revisions, situation.intent
    if waits_for_adoption(situation):
        return Plan()  # with its first revision, the pool would create VMs beside those that its user adopts next
    below = annotations_of(situation.pool).get(PARTITION_REVISION, "") if intent.steps else ""
    noted = (intent.settings.ready_revision, below)
    is_wanted = situation.members.some(situation.may_update) and is_taken_over(situation, revisions.template)
    is_used = situation.members.some(lambda each: revision_of(each.vm) == revisions.current)
    creation = plan_revision(snapshot, revisions) if is_wanted or is_used else ()
    if creation:
        made = [each for each in writes.actions if isinstance(each, Create) and each.resource is CONTROLLER_REVISIONS]
        return Plan() if made else Plan(stages=creation)
    return plan_pruning(snapshot, revisions, noted=noted) if prunes else Plan()


def _plan_stopped(members: Machines) -> Plan:
    """Return a plan that says which VMs do not run because their users have stopped them."""
    stopped = by_name(members.where(lambda each: bool(stopped_by(each.vm, each.vmi))))
    if not stopped:
        return Plan()
    by = stopped_by(stopped[0].vm, stopped[0].vmi)
    text = f"{counted(len(stopped), 'VM is', 'VMs are')} stopped ({by})"
    return waiting(text, Why.START, names=tuple(each.metadata.name for each in stopped[:MAX_NOTICES]))


def _undecodable_notices(situation: Situation) -> tuple[Notice, ...]:
    # A VM with an undecodable field is not steady, so it is alone in its group.
    vms = [each.vm for each in situation.members.where(lambda each: bool(each.vm.undecodable))]
    strange = situation.snapshot.members.where(lambda each: each.vmi is not None and bool(each.vmi.undecodable))
    vmis = [each.vmi for each in strange if each.vmi is not None]
    return undecodable_notices((*vms, *vmis), situation.now)


def _plan_advice(intent: Intent) -> Iterator[Plan]:
    """Yield plans with Events, each of which is sent once: for each `basePolicy` that is ignored, because `sortPolicy`
    has another value (P8), and if the pool's selector matches no Pod of the pool.

    An autoscaler finds Pods by the pool's selector. But a Pod has the labels of the VMI template, not of the VM.
    """
    for text in dict.fromkeys((intent.scale_in.selection.ignored, intent.update.selection.ignored)):
        if text:
            yield Plan(notices=(Notice(reason="FieldIgnored", message=text, once=text),))
    labels = intent.template.machine_labels
    if intent.selector.matches(labels):
        return
    unmet = ", ".join(intent.selector.unmet(labels))
    message = (
        f"an autoscaler of this pool finds no Pod: {unmet} of spec.selector does not match "
        "spec.virtualMachineTemplate.spec.template.metadata.labels"
    )
    notice = Notice(reason="SelectorMatchesNoPod", message=message, once=message)
    yield replace(waiting(message, Why.CHOICE), notices=(notice,))
