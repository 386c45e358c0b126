"""The plan of one reconciliation of a pool, with the rules P1 to P16.

`plan` is a pure function. It returns a plan for every snapshot, and always the same plan for the same snapshot. If
nothing has to change, the plan is empty. The stages do these steps, in this order:

1. They remove the pool finalizer from VMs that leave. They add the finalizer to members whose disks must be kept, or
   remove it from members whose disks need not be kept. They release members (P2, P6, P9, P10). A member is a VM that
   the pool controls.
2. They add the finalizer to the pool (P6).
3. They heal VMs (P15).
4. They create or delete VMs (P3, P4, P8).
5. They update VMs (P12 to P14), if no member is released and step 4 does nothing. There is one exception: if the server
   rejects new VMs, for example because of a quota, the update does not wait for the missing members.
6. They delete old revisions (P11), if no other step writes anything.

If the pool is invalid or paused, the plan only removes the pool finalizer from VMs that leave. So users can still
delete VMs. If the pool is paused, the plan also corrects the finalizers of members. If the caches do not show all
earlier writes for this pool, the plan contains no writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from controller.apimachinery.field_error import INVALID_SPEC, FieldError
from controller.kubevirt.vms import is_deleting, revision_of
from controller.pool.failures import is_scale_out_refused
from controller.pool.healing.downtime_note import plan_unready_note
from controller.pool.healing.heal import plan_healing
from controller.pool.health import plan_progress
from controller.pool.leaving.claims import choose_claims, plan_finalizer_removals, plan_releases
from controller.pool.leaving.deletion import plan_deletion, plan_own_finalizer
from controller.pool.leaving.disks import preserves_disks
from controller.pool.leaving.member_finalizers import plan_member_finalizers
from controller.pool.members.machine import Machines
from controller.pool.members.revisions import plan_pruning, plan_revision, read_revisions
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.brake import is_taken_over, plan_first_mark, plan_takeover
from controller.pool.rollout.limits import plan_partition_note
from controller.pool.rollout.recreations import count_missing
from controller.pool.rollout.update import pending_steps, plan_update
from controller.pool.scale import plan_scale
from controller.pool.spec.advice import plan_advice
from controller.pool.spec.intent import Intent, parse_intent
from controller.replicas.release_delay import plan_held, wanted_beside
from controller.replicas.replica_limit import limited, plan_limit
from controller.replicas.undecodable import undecodable_notices
from controller.replicas.wrong_annotations import with_wrong_annotations
from controller.runtime.actions import Notice, Plan, join

UNSETTLED = Plan(held="the cache does not show all of our own writes yet")


def plan(snapshot: Snapshot) -> Plan:
    """Return the writes and Events of the next reconciliation of this pool."""
    return with_wrong_annotations(_plan(snapshot), snapshot.wrong_annotations)


def _plan(snapshot: Snapshot) -> Plan:
    owner = snapshot.owner
    if owner.metadata.deletion_timestamp is not None:
        return plan_deletion(snapshot) if snapshot.settled else UNSETTLED
    intent = parse_intent(owner)
    if isinstance(intent, FieldError):
        notice = Notice(reason=INVALID_SPEC, message=intent.message, once=f"generation-{owner.metadata.generation}")
        blocked = Plan(held=f"invalid: {intent.message}", notices=(notice,))
        return join([_finalizer_removals(snapshot), blocked])
    if owner.spec.paused:
        parts = [_finalizer_removals(snapshot), _member_finalizers(snapshot, intent, snapshot.members)]
        return join([*parts, Plan(held="paused")])
    return _plan_active(snapshot, intent) if snapshot.settled else UNSETTLED


def _finalizer_removals(snapshot: Snapshot) -> Plan:
    return plan_finalizer_removals(snapshot, preserve=preserves_disks(snapshot)) if snapshot.settled else Plan()


def _member_finalizers(snapshot: Snapshot, intent: Intent, members: Machines, others: Iterable[Plan] = ()) -> Plan:
    """Plan the finalizers of VMs that stay. While a takeover waits for the user, no finalizer is removed from them."""
    if not snapshot.settled:
        return Plan()
    may_remove = is_taken_over(snapshot, intent.template)
    preserve = intent.scale_in.preserve
    return plan_member_finalizers(snapshot, members, preserve=preserve, may_remove=may_remove, others=others)


def _plan_active(snapshot: Snapshot, intent: Intent) -> Plan:
    """Return the plan for a valid pool that is neither paused nor being deleted.

    The caller checks first that the caches show all earlier writes for this pool.
    """
    claims = choose_claims(snapshot, intent)
    members = claims.kept
    limit_notice = plan_limit(snapshot.owner.metadata, intent.wanted, snapshot.limits.max_replicas)
    wanted = wanted_beside(len(claims.held), intent.wanted, len(members))
    intent = replace(intent, wanted=limited(wanted, len(members), snapshot.limits.max_replicas))
    revisions = read_revisions(snapshot, intent.template)
    healing = plan_healing(snapshot, intent, revisions, members)
    scaling = plan_scale(snapshot, intent, revisions, members, deleted_uids=healing.uids)
    parts = [
        _finalizer_removals(snapshot),
        plan_releases(snapshot, claims.released),
        plan_held(snapshot.owner.metadata, claims.held, snapshot.now),
        plan_own_finalizer(snapshot),
        plan_first_mark(snapshot, intent.template),
        plan_partition_note(snapshot, revisions),
        plan_unready_note(snapshot, intent, revisions),
        plan_progress(snapshot, intent, revisions),
        Plan(notices=_undecodable_notices(snapshot, members)),
        _wake_for_refused(snapshot),
        healing.plan,
        scaling,
    ]
    missing = count_missing(snapshot, intent.wanted, members)
    is_refused = bool(scaling.stages) and len(members) < intent.wanted and is_scale_out_refused(snapshot)
    if is_refused:
        # The next creates will probably fail as well, so their failure must not stop the update.
        parts[-1] = scaling = _with_optional_creates(scaling)
        intent, revisions = replace(intent, wanted=len(members)), replace(revisions, current_exists=True)
    updates = (is_refused or not scaling.stages) and not claims.released and _count_is_right(intent, members)
    if updates:
        pending = pending_steps(snapshot, intent, revisions, members, deleted_uids=healing.uids)
        update = plan_update(snapshot, intent, revisions, members, pending, deleted_uids=healing.uids, missing=missing)
        parts.append(plan_takeover(snapshot, revisions, update, pending))
    # Disks are safe as early as possible, so this stage is one of the first. A failed create does not skip it.
    parts.insert(1, _member_finalizers(snapshot, intent, members + claims.held, parts))
    if updates and not any(part.stages for part in parts):
        # A user may have deleted the revision of the VMs.
        is_used = members.some(lambda each: revision_of(each.vm) == revisions.current)
        parts.append(Plan(stages=plan_revision(snapshot, revisions)) if is_used else Plan())
    if updates and not any(part.stages for part in parts):
        parts.append(plan_pruning(snapshot, revisions))
    return join((*parts, limit_notice, plan_advice(intent)))


def _wake_for_refused(snapshot: Snapshot) -> Plan:
    first = min((each.until for each in snapshot.refused.values()), default=None)
    return Plan(requeue_after_s=(first - snapshot.now).total_seconds() if first is not None else None)


def _undecodable_notices(snapshot: Snapshot, members: Machines) -> tuple[Notice, ...]:
    # A VM with an undecodable field is not steady, so it is alone in its group.
    vms = [each.vm for each in members.where(lambda each: bool(each.vm.undecodable))]
    strange = snapshot.members.where(lambda each: each.vmi is not None and bool(each.vmi.undecodable))
    vmis = [each.vmi for each in strange if each.vmi is not None]
    return undecodable_notices((*vms, *vmis), snapshot.now)


def _with_optional_creates(scaling: Plan) -> Plan:
    """Return the plan of a scale-out in which the creation of VMs may fail. If it fails, the later stages still run."""
    *first, creates = scaling.stages
    return replace(scaling, stages=(*first, replace(creates, essential=False)))


def _count_is_right(intent: Intent, members: Machines) -> bool:
    """Return True if the number of VMs does not block an update.

    If there are surplus VMs and a VM is terminating, a scale-in is still running, so the update waits. If no VM is
    terminating, surplus VMs do not block an update, because the scale-in policy may keep them (P8, P9).
    """
    return len(members) <= intent.wanted or not members.some(lambda each: is_deleting(each.vm))
