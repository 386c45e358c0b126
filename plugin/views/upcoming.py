"""What the controller does later if no object changes: Events, writes and the stall, each with its time.

The controller's own functions give these times. The plan of a snapshot says when the controller looks again. Then the
same functions run on the same snapshot with this later time. So there is no second formula for a deadline or a delay.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import find_true, with_timezone
from controller.pool.health import plan_progress as pool_progress
from controller.pool.members.situation import Situation as PoolSituation
from controller.pool.members.situation import situation_of
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.status import next_status as pool_status
from controller.replicas.conditions import REPLICA_FAILURE, STALLED
from controller.replicas.kstatus import plan_deadline
from controller.replicas.settings import read_settings
from controller.replicaset.health import plan_progress as set_progress
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.situation import Situation as SetSituation
from controller.replicaset.situation import situation_of as set_situation
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.replicaset.status import next_status as set_status
from controller.runtime.actions import Action, Plan, join, label_of
from controller.runtime.dry_run import reported_actions
from informers.ratelimit import LONGEST_ITEM_DELAY_S
from plugin.views.situation import not_yet_tried
from plugin.views.tables import short

ROUNDS: Final = 12
"""The largest number of later times at which the plan is made."""

HORIZON_S: Final = 24 * 3600.0
LISTED: Final = 3
SHORTEST: Final = timedelta(milliseconds=1)


Planner: TypeAlias = Callable[[Any], Plan]


class Upcoming(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that happens in `seconds` if nothing changes. `seconds` is None if the time is not known."""

    seconds: float | None
    text: str
    is_write: bool = False


def upcoming_of(snapshot: Any) -> tuple[Upcoming, ...]:
    """Return what the controller does later with this object, the earliest first."""
    if snapshot.owner.spec.paused or snapshot.owner.metadata.deletion_timestamp is not None:
        return ()
    match snapshot:
        case PoolSnapshot() if isinstance(pool := situation_of(snapshot), PoolSituation):
            found = _later(snapshot, plan_pool, pool_status, pool_progress(pool))
        case SetSnapshot() if isinstance(owner := set_situation(snapshot), SetSituation):
            found = _later(snapshot, plan_set, set_status, set_progress(owner))
        case _:
            return ()
    found += _repeated_writes(snapshot.owner.status)
    return tuple(sorted(found, key=lambda each: (each.seconds is None, each.seconds or 0)))


def _later(
    snapshot: Any, plan_of: Planner, status_of: Callable[[Any, Any, Any], Any], progress: Plan
) -> list[Upcoming]:
    """Return the new Events, the new writes and the stall of the plans at later times.

    The search ends with the first new write, because the write changes an object. `progress` asks for a reconciliation
    when the object becomes stalled because of a VM.
    """
    deadline = join((progress, _failure_deadline(snapshot)))
    now = plan_of(snapshot)
    events = {notice.reason for notice in now.notices}
    actions = set(map(_identity, reported_actions(now)))
    is_stalled = _is_stalled(status_of(snapshot, not_yet_tried(now), now.waits))
    found: list[Upcoming] = []
    has_writes = False
    for at, plan in _plans(snapshot, now, plan_of, deadline):
        seconds = (at - snapshot.now).total_seconds()
        added = [each for each in reported_actions(plan) if _identity(each) not in actions]
        if added and not has_writes:
            found += _writes(added, seconds)
            has_writes = True
        fresh = [each.reason for each in plan.notices if each.reason not in events and not added]
        found += [Upcoming(seconds=seconds, text=f"{reason} in {short(seconds)}") for reason in dict.fromkeys(fresh)]
        events.update(fresh)
        if not is_stalled and _is_stalled(status_of(replace(snapshot, now=at), not_yet_tried(plan), plan.waits)):
            is_stalled = True
            found += [] if fresh else [Upcoming(seconds=seconds, text=f"Stalled in {short(seconds)}")]
    return found


def _plans(snapshot: Any, plan: Plan, plan_of: Planner, deadline: Plan) -> Iterator[tuple[datetime, Plan]]:
    """Yield the plans at the next times at which the controller looks, and the plan at the deadline."""
    due = deadline.requeue_after_s
    end = snapshot.now + timedelta(seconds=due) if due is not None else None
    at = snapshot.now
    for _ in range(ROUNDS):
        if plan.requeue_after_s is None or plan.requeue_after_s > HORIZON_S:
            break
        at += max(timedelta(seconds=plan.requeue_after_s), SHORTEST)
        plan = plan_of(replace(snapshot, now=at))
        yield at, plan
    if end is not None and end > at:
        yield end, plan_of(replace(snapshot, now=end))


def _identity(action: Action) -> tuple[str, str, object]:
    return label_of(type(action)), action.resource.plural, action.key


def _writes(actions: list[Action], seconds: float) -> Iterable[Upcoming]:
    for each in actions[:LISTED]:
        text = f"in {short(seconds)}: {label_of(type(each))} {each.resource.plural} {each.key}: {each.why}"
        yield Upcoming(seconds=seconds, text=text, is_write=True)
    if len(actions) > LISTED:
        text = f"in {short(seconds)}: {len(actions) - LISTED} more writes"
        yield Upcoming(seconds=seconds, text=text, is_write=True)


def _is_stalled(status: Any) -> bool:
    return find_true(status.conditions, STALLED) is not None


def _failure_deadline(snapshot: Any) -> Plan:
    """Return a plan that asks for a reconciliation when a failed write makes the object stalled."""
    status, meta = snapshot.owner.status, snapshot.owner.metadata
    failure = find_true(status.conditions if status is not None else None, REPLICA_FAILURE)
    since = with_timezone(failure.last_transition_time) if failure is not None else None
    return plan_deadline([since], snapshot.now, read_settings(meta).deadline)


def _repeated_writes(status: Any) -> Iterator[Upcoming]:
    if find_true(status.conditions if status is not None else None, REPLICA_FAILURE) is not None:
        pause = short(LONGEST_ITEM_DELAY_S)
        yield Upcoming(seconds=None, text=f"the failed write is repeated, after a growing pause of at most {pause}")
