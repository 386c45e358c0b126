"""What the controller does later if no object changes: Events, writes and the stall, each with its time.

The controller's own functions give these times. The plan of a snapshot says when the controller looks again. Then the
same functions run on the same snapshot with this later time. So there is no second formula for a deadline or a delay.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import find_true, with_timezone
from controller.apimachinery.field_error import FieldError
from controller.pool.health import plan_progress as pool_progress
from controller.pool.members.situation import situation_of as pool_situation
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.pool.plan import plan as plan_pool
from controller.pool.status import next_status as pool_status
from controller.replicas.conditions import REPLICA_FAILURE, STALLED
from controller.replicas.kstatus import plan_deadline
from controller.replicas.settings import read_settings
from controller.replicaset.health import plan_progress as set_progress
from controller.replicaset.plan import plan as plan_set
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


class Upcoming(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that happens in `seconds` if nothing changes. `seconds` is None if the time is not known."""

    seconds: float | None
    text: str
    is_write: bool = False


def upcoming_of(snapshot: PoolSnapshot | SetSnapshot) -> tuple[Upcoming, ...]:
    """Return what the controller does later with this object, the earliest first: the new Events, the new writes and
    the stall of the plans at later times. The search for writes ends with the first, because it changes an object.
    """
    is_paused, deleted = snapshot.owner.spec.paused, snapshot.owner.metadata.deletion_timestamp
    if is_paused or deleted is not None or isinstance(_situation(snapshot), FieldError):
        return ()
    found: list[Upcoming] = []
    looks = _looks(snapshot)
    _, now, status = next(looks)
    events, actions = {each.reason for each in now.notices}, set(map(_identity, reported_actions(now)))
    is_stalled, has_writes = find_true(status.conditions, STALLED) is not None, False
    if find_true(status.conditions, REPLICA_FAILURE) is not None:
        text = f"the failed write is repeated, after a growing pause of at most {short(LONGEST_ITEM_DELAY_S)}"
        found.append(Upcoming(seconds=None, text=text))
    for seconds, plan, status in looks:
        added = [each for each in reported_actions(plan) if _identity(each) not in actions]
        if added and not has_writes:
            found += _writes(added, seconds)
            has_writes = True
        fresh = dict.fromkeys(each.reason for each in plan.notices if each.reason not in events and not added)
        found += [Upcoming(seconds=seconds, text=f"{reason} in {short(seconds)}") for reason in fresh]
        events.update(fresh)
        if not is_stalled and find_true(status.conditions, STALLED) is not None:
            is_stalled = True
            found += [] if fresh else [Upcoming(seconds=seconds, text=f"Stalled in {short(seconds)}")]
    return tuple(sorted(found, key=lambda each: (each.seconds is None, each.seconds or 0)))


def _looks(snapshot: Any) -> Iterator[tuple[float, Plan, Any]]:
    """Yield the plan and the status now, at the next times at which the controller looks, and at the time at which the
    object becomes stalled. The first value is the time from now in seconds.
    """
    plan_of: Any = plan_pool if isinstance(snapshot, PoolSnapshot) else plan_set
    status_of: Any = pool_status if isinstance(snapshot, PoolSnapshot) else set_status

    def look(at: datetime) -> tuple[float, Plan, Any]:
        later = replace(snapshot, now=at)
        plan = plan_of(later)
        return (at - snapshot.now).total_seconds(), plan, status_of(later, not_yet_tried(plan), plan.waits)

    deadline = _deadline(snapshot)
    at, end = snapshot.now, snapshot.now + timedelta(seconds=deadline) if deadline is not None else None
    for _ in range(ROUNDS):
        seconds, plan, status = look(at)
        yield seconds, plan, status
        if plan.requeue_after_s is None or plan.requeue_after_s > HORIZON_S:
            break
        at += max(timedelta(seconds=plan.requeue_after_s), SHORTEST)
    if end is not None and end > at:
        yield look(end)


def _identity(action: Action) -> tuple[str, str, object]:
    return label_of(type(action)), action.resource.plural, action.key


def _writes(actions: list[Action], seconds: float) -> Iterable[Upcoming]:
    texts = [f"{label_of(type(each))} {each.resource.plural} {each.key}: {each.why}" for each in actions[:LISTED]]
    texts += [f"{len(actions) - LISTED} more writes"] if len(actions) > LISTED else []
    return (Upcoming(seconds=seconds, text=f"in {short(seconds)}: {text}", is_write=True) for text in texts)


def _situation(snapshot: Any) -> Any:
    return pool_situation(snapshot) if isinstance(snapshot, PoolSnapshot) else set_situation(snapshot)


def _deadline(snapshot: Any) -> float | None:
    """Return the seconds until a VM or a failed write makes the object stalled, or None."""
    status, meta = snapshot.owner.status, snapshot.owner.metadata
    failure = find_true(status.conditions if status is not None else None, REPLICA_FAILURE)
    since = with_timezone(failure.last_transition_time) if failure is not None else None
    progress_of: Any = pool_progress if isinstance(snapshot, PoolSnapshot) else set_progress
    writes = plan_deadline([since], snapshot.now, read_settings(meta).deadline)
    return join((progress_of(_situation(snapshot)), writes)).requeue_after_s
