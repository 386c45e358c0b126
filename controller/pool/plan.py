"""What one pass over a pool does: the rules P1 to P16, in the order in which they take effect.

`plan` is total and pure: any snapshot gives a plan, the same one each time, and a pool that is as it should be gets an
empty one. Stages: let go what leaves, and release (P2, P9, P10), the pool's finalizer (P6), heal (P15), create or
delete (P3, P4, P8), when that is nothing, update (P12 to P14), and when that is nothing either, prune (P11).

While the pool is invalid or paused, only what leaves is let go: a VM that its user deletes must not wait for that.
While the caches do not show all that was written, nothing happens at all.
"""

from __future__ import annotations

from controller.apimachinery.field_error import INVALID_SPEC, FieldError
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting
from controller.pool.claims import choose_claims, plan_departures, plan_releases
from controller.pool.disks import asks_to_preserve
from controller.pool.finalizer import plan_deletion, plan_own_finalizer
from controller.pool.heal import plan_healing
from controller.pool.intent import Intent, parse_intent
from controller.pool.revisions import plan_pruning, read_revisions
from controller.pool.rollout import plan_partition_note
from controller.pool.scale import plan_scale
from controller.pool.snapshot import Snapshot
from controller.pool.takeover import plan_first_mark, plan_takeover
from controller.pool.update import plan_update
from controller.runtime.plan import Delete, Notice, Plan, join

UNSETTLED = Plan(held="the cache does not show all of our own writes yet")


def plan(snapshot: Snapshot) -> Plan:
    """Decide what to do about this pool now."""
    owner = snapshot.owner
    if owner.metadata.deletion_timestamp is not None:
        return plan_deletion(snapshot) if snapshot.settled else UNSETTLED
    intent = parse_intent(owner)
    if isinstance(intent, FieldError):
        notice = Notice(reason=INVALID_SPEC, message=intent.message, once=f"generation-{owner.metadata.generation}")
        held = Plan(held=f"invalid: {intent.message}", notices=(notice,))
        return join([_departures(snapshot), held])
    if owner.spec.paused:
        return join([_departures(snapshot), Plan(held="paused")])
    return _plan_freely(snapshot, intent) if snapshot.settled else UNSETTLED


def _departures(snapshot: Snapshot) -> Plan:
    return plan_departures(snapshot, preserve=asks_to_preserve(snapshot)) if snapshot.settled else Plan()


def _plan_freely(snapshot: Snapshot, intent: Intent) -> Plan:
    claims = choose_claims(snapshot, intent.selector)
    members = claims.kept
    revisions = read_revisions(snapshot, intent.template)
    healing = plan_healing(snapshot, intent, members)
    going = frozenset(action.uid for action in healing.actions if isinstance(action, Delete))
    scaling = plan_scale(snapshot, intent, revisions, members, going=going)
    parts = [
        _departures(snapshot),
        plan_releases(snapshot, claims.released),
        plan_own_finalizer(snapshot),
        plan_first_mark(snapshot, intent.template),
        plan_partition_note(snapshot, revisions),
        healing,
        scaling,
    ]
    if not scaling.stages and not claims.released and _count_is_right(intent, members):
        update = plan_update(snapshot, intent, revisions, members, going=going)
        parts.append(plan_takeover(snapshot, revisions, update))
        if not any(part.stages for part in parts):
            parts.append(plan_pruning(snapshot, revisions))
    return join(parts)


def _count_is_right(intent: Intent, members: tuple[VirtualMachine, ...]) -> bool:
    """Whether nobody is still leaving for good. More than wanted is right where nobody may be deleted (P8, P9)."""
    return len(members) <= intent.wanted or not any(map(is_deleting, members))
