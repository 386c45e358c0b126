"""What the controller does later if no object changes: the next writes, a new wait for the user, and the stall.

The controller's own functions give these times. The plan of a snapshot says when the controller looks again. Then the
same functions run on the same snapshot with this later time. So there is no second formula for a deadline or a delay.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true, with_timezone
from controller.apimachinery.field_error import INVALID_SPEC
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.status import next_status as pool_status
from controller.replicas.conditions import REPLICA_FAILURE, STALLED
from controller.replicas.settings import read_settings
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.replicaset.status import next_status as set_status
from controller.runtime.actions import Plan, label_of
from controller.runtime.dry_run import action_text, reported_actions
from controller.runtime.execute.refusals import LONGEST_WAIT_S
from plugin.views.situation import not_yet_tried
from plugin.views.tables import short

ROUNDS: Final = 12
"""The largest number of later times at which the plan is made."""

HORIZON: Final = timedelta(days=1)
LISTED: Final = 3
SHORTEST: Final = timedelta(milliseconds=1)
REPEATED: Final = f"the failed write is repeated, after a growing pause of at most {short(LONGEST_WAIT_S)}"


class Upcoming(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that happens in `seconds` if nothing changes. `seconds` is None if the time is not known."""

    seconds: float | None
    text: str
    is_write: bool = False


def upcoming_of(snapshot: PoolSnapshot | SetSnapshot) -> tuple[Upcoming, ...]:
    """Return what the controller does later with this object, the earliest first.

    The search ends with the first write, because it changes an object, and what follows is not known.
    """
    owner, at = snapshot.owner, snapshot.now
    plan, conditions = _look(snapshot, at)
    stall, failure = (find_true(conditions, type_) for type_ in (STALLED, REPLICA_FAILURE))
    is_invalid = stall is not None and stall.reason == INVALID_SPEC
    stall = stall or find_true(owner.status.conditions if owner.status is not None else None, STALLED)
    if owner.spec.paused or owner.metadata.deletion_timestamp is not None or is_invalid:
        return ()
    known, causes, found = set(_changes(plan)), {each.why for each in plan.waits}, list[Upcoming]()
    since = with_timezone(failure.last_transition_time) if failure is not None else None
    deadline = since + read_settings(owner.metadata).deadline if since is not None else at
    end = min((each.until for each in plan.waits if each.until is not None), default=at + HORIZON)
    for _ in range(ROUNDS):
        wake = [timedelta(seconds=plan.requeue_after_s)] if plan.requeue_after_s is not None else []
        times = [*(at + max(each, SHORTEST) for each in wake), *([deadline] if deadline > at else [])]
        at = min(times, default=end)
        if at >= end:
            break
        seconds = (at - snapshot.now).total_seconds()
        plan, conditions = _look(snapshot, at)
        changes = [text for key, text in _changes(plan).items() if key not in known]
        if changes:
            more = [f"{len(changes) - LISTED} more writes"] if len(changes) > LISTED else []
            texts = (f"in {short(seconds)}: {each}" for each in (*changes[:LISTED], *more))
            found += [Upcoming(seconds=seconds, text=each, is_write=True) for each in texts]
            break
        fresh = [each for each in plan.waits if each.needs_user and each.why not in causes]
        found += [Upcoming(seconds=seconds, text=f"in {short(seconds)}: {each.text}") for each in fresh]
        causes.update(each.why for each in fresh)
        if stall is None and (stall := find_true(conditions, STALLED)) is not None:
            found.append(Upcoming(seconds=seconds, text=f"Stalled in {short(seconds)}"))
    if failure is not None:
        found.append(Upcoming(seconds=None, text=REPEATED))
    return tuple(found)


def _look(snapshot: Any, at: datetime) -> tuple[Plan, Iterable[Condition] | None]:
    is_pool, later = isinstance(snapshot, PoolSnapshot), replace(snapshot, now=at)
    plan = plan_pool(later) if is_pool else plan_set(later)
    status: Any = (pool_status if is_pool else set_status)(later, not_yet_tried(plan), plan.waits)
    return plan, status.conditions


def _changes(plan: Plan) -> dict[tuple[object, ...], str]:
    """Return the writes of a plan as text. Of the notes, only those with an Event change what follows."""
    told = {id(each.after): each.message for each in plan.notices if each.after is not None}
    shown = {id(each) for each in reported_actions(plan)}
    return {
        (label_of(type(each)), each.resource.plural, each.key): action_text(each)
        if id(each) in shown
        else told[id(each)]
        for each in plan.actions
        if id(each) in shown or id(each) in told
    }
