"""What one pass over a replica set does: the rules R1 to R8 and R14, in the order in which they take effect.

`plan` is total and pure: any snapshot gives a plan, the same one each time, and a set that is as it should be gets an
empty one. Stages: confirm the set, adopt and release (R2), then create or delete (R4, R6), then clear away what is
spent (R7), then, when the count is right, replace what is outdated (R14). While the set is being deleted, invalid,
paused or unsettled, `held` says so and nothing else happens.
"""

from __future__ import annotations

from controller.apimachinery.field_error import INVALID_SPEC, FieldError
from controller.replicaset.claims import choose_claims, plan_claims
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.rollout import plan_rollout
from controller.replicaset.scale import plan_cleanup, plan_scale, take_census
from controller.replicaset.snapshot import Snapshot
from controller.runtime.plan import Delete, Notice, Plan, join


def plan(snapshot: Snapshot) -> Plan:
    """Decide what to do about this set now."""
    owner = snapshot.owner
    if owner.metadata.deletion_timestamp is not None:
        return Plan(held="being deleted")
    intent = parse_intent(owner)
    if isinstance(intent, FieldError):
        notice = Notice(reason=INVALID_SPEC, message=intent.message, once=f"generation-{owner.metadata.generation}")
        return Plan(held=f"invalid: {intent.message}", notices=(notice,))
    if owner.spec.paused:
        return Plan(held="paused")
    if not snapshot.settled:
        return Plan(held="the cache does not show all of our own writes yet")
    return _plan_freely(snapshot, intent)


def _plan_freely(snapshot: Snapshot, intent: Intent) -> Plan:
    claims = choose_claims(snapshot, intent.selector)
    ours = take_census(claims.kept)
    # What is adopted in this pass counts in it, or its replacement would be created beside it.
    newcomers = take_census(claims.adopted)
    active = ours.active + newcomers.active
    scaling = plan_scale(snapshot, intent, active, newcomers=frozenset(vmi.metadata.uid for vmi in newcomers.active))
    limit = snapshot.burst - _deletes_of(scaling)
    cleanup = plan_cleanup(snapshot, ours.spent, limit=limit)
    parts = [plan_claims(snapshot, claims), scaling, cleanup]
    if not claims.adopted and not claims.released and len(active) >= intent.wanted and not scaling.stages:
        parts.append(plan_rollout(snapshot, intent, active, limit=limit - _deletes_of(cleanup)))
    return join(parts)


def _deletes_of(part: Plan) -> int:
    return sum(isinstance(action, Delete) for action in part.actions)
