"""The interface of a reconciler, and the results of a reconciliation, made from outcomes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct, structs

from controller.runtime.actions import (
    Check,
    Done,
    Notice,
    Outcome,
    Patch,
    Pause,
    Plan,
    Postponed,
    Rejected,
    Unknown,
    Unserved,
    label_of,
)
from informers.errors import (
    ApiError,
    Conflict,
    Forbidden,
    ServerError,
    TooManyRequests,
    TransportError,
    requested_delay_s,
)
from informers.meta import ObjectKey

LOOK_AGAIN_S = 5.0
"""The delay after a write or a wait for the cache, in seconds. Usually a watch event comes much earlier."""


POSTPONED_S = 0.5
LONGEST_POSTPONED_S = 30.0
"""The shortest and the longest delay, in seconds, before a postponed create is tried again (see `postponed_s`)."""


LISTED = 10
OUTAGE_CODES = frozenset({503, 504})
ETCD_MESSAGES = ("etcdserver: ", "rpc error: code = ")
"""The first words of the error message if etcd caused a 500. The message of a webhook begins with other words."""

LONGEST_RETRY_AFTER_S = 300.0
"""The longest delay, in seconds, that a Retry-After can cause. A wrong Retry-After must not stop a key for a day."""

LONGEST_WAIT_OF_ERROR_S = 30.0
"""The longest wait after an error of the server, such as 500 because a webhook does not answer. It may end soon."""

UNSERVED_S = 30.0
"""The delay after a restart that was not served, in seconds. No event tells when it is served again."""


class AwaitChange(Struct, frozen=True):
    """The result of a reconciliation that needs no retry. A change of an object starts the next one."""


class After(Struct, frozen=True):
    """The result if the key must be reconciled again after `seconds`, also if an event starts an earlier one."""

    seconds: float


class Retry(Struct, frozen=True):
    """The key is reconciled again after its backoff, and not before `not_before_s`, the Retry-After in seconds.

    A server-side failure (`outage`) does not increase the backoff. With `lost_race`, all failures are conflicts with
    other writers, so none counts. `also_after_s` is the longest delay, or None.
    """

    why: str
    not_before_s: float = 0.0
    outage: bool = False
    lost_race: bool = False
    also_after_s: float | None = None


Result: TypeAlias = AwaitChange | After | Retry


class Report(Struct, frozen=True):
    """The result of one reconciliation, and facts for its log line, for example `create_done=3`."""

    result: Result
    facts: Mapping[str, object] = {}


class Cleanup(Struct, frozen=True):
    """A plan that removes the finalizers of a kind. A controller has to keep the disks of those `left`."""

    plan: Plan
    left: tuple[ObjectKey, ...] = ()


class Reconciler(Protocol):
    """Brings one object to its desired state. At most one worker at a time calls `reconcile` for the same key."""

    async def reconcile(self, key: ObjectKey) -> Report: ...


def was_tried(outcome: Outcome) -> bool:
    return not (isinstance(outcome, Rejected) and outcome.is_repeated)


def name_of(outcome: Outcome) -> str:
    return label_of(type(outcome)) if was_tried(outcome) else "waiting"


def notices_after(notices: Iterable[Notice], outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
    done = {each.action for each in outcomes if isinstance(each, Done) and isinstance(each.action, Patch | Pause)}
    return tuple(each for each in notices if each.after is None or each.after in done)


def result_of(plan: Plan, outcomes: Iterable[Outcome], *, settled: bool, other_error: ApiError | None = None) -> Result:
    """Return when the key is reconciled again. `other_error` is one outside the plan, as of the status write."""
    outcomes = tuple(outcomes)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Rejected | Unknown)]
    temporary = [failure.error for failure in failures if not failure.wait_s and not is_final(failure)]
    if other_error is not None:
        temporary.append(other_error)
    refused = [failure for failure in failures if failure.wait_s and not is_final(failure)]
    waits = [failure.wait_s for failure in refused]
    waits += [postponed_s(outcome) for outcome in outcomes if isinstance(outcome, Postponed)]
    if temporary:
        retry = retry_after(*temporary)
        waits += [each for each in (plan.requeue_after_s, retry.also_after_s) if each is not None]
        return structs.replace(retry, also_after_s=min(waits, default=None))
    if any(isinstance(outcome, Unserved) for outcome in outcomes):
        waits.append(UNSERVED_S)
    if not waits and not failures and (outcomes or not settled):
        waits.append(LOOK_AGAIN_S)
    if plan.requeue_after_s is not None:
        waits.append(plan.requeue_after_s)
    if any(map(was_tried, refused)):
        return Retry(str(refused[0].error), not_before_s=min(waits), also_after_s=min(waits))
    return After(min(waits)) if waits else AwaitChange()


def not_later_than(result: Result, seconds: float) -> Result:
    """Return a result with which the key is reconciled in this time at the latest. A retry keeps its own time."""
    match result:
        case AwaitChange():
            return After(seconds)
        case After():
            return After(min(result.seconds, seconds))
        case Retry():
            return result


def postponed_s(outcome: Postponed) -> float:
    """Return the delay before the next try, which grows with the wait: no event tells of the deletion of a disk."""
    return min(max(POSTPONED_S, outcome.waited_s / 4), LONGEST_POSTPONED_S)


def retry_after(*errors: ApiError) -> Retry:
    """Return a `Retry` with the text of the first error, and as an `outage` if one of them is. After another error of
    the server, such as a failing webhook, the key waits for at most `LONGEST_WAIT_OF_ERROR_S`.
    """
    of_server = any(isinstance(error, ServerError) for error in errors)
    return Retry(
        str(errors[0]),
        not_before_s=max(requested_delay_s(error, longest_s=LONGEST_RETRY_AFTER_S) for error in errors),
        outage=any(is_outage(error) for error in errors),
        lost_race=all(isinstance(error, Conflict) for error in errors),
        also_after_s=LONGEST_WAIT_OF_ERROR_S if of_server else None,
    )


def is_outage(error: ApiError) -> bool:
    """Return True if the server does not answer or cannot serve now: 429, 503, 504, or 500 with a message of etcd. Any
    other 5xx error may concern one request only, for example if a webhook fails.
    """
    if isinstance(error, ServerError):
        return error.code in OUTAGE_CODES or str(error).startswith(ETCD_MESSAGES)
    return isinstance(error, TransportError | TooManyRequests)


def is_final(failure: Rejected | Unknown) -> bool:
    """Return True if a retry cannot succeed, because the namespace is being deleted and accepts no new objects."""
    return isinstance(failure.error, Forbidden) and failure.error.namespace_terminating


def facts_of(plan: Plan, outcomes: Iterable[Outcome], *, other_error: ApiError | None = None) -> dict[str, object]:
    """Return the facts for the log line, or {} if nothing was done and nothing failed.

    These are the actions by type and outcome, `wrote` with at most `LISTED` writes and `and_more`, the first `failure`
    or only `conflict`, and why writes are `held`.
    """
    outcomes = tuple(outcomes)
    names = (f"{label_of(type(outcome.action))}_{name_of(outcome)}" for outcome in outcomes)
    facts: dict[str, object] = dict(Counter(names))
    wrote = [
        f"{label_of(type(each.action))} {each.action.resource.plural}/{each.action.key.name}"
        for each in outcomes
        if isinstance(each, Done) and not isinstance(each.action, Check)
    ]
    if wrote:
        facts["wrote"] = wrote[:LISTED]
    if len(wrote) > LISTED:
        facts["and_more"] = len(wrote) - LISTED
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, Rejected | Unknown | Unserved)]
    if other_error is not None:
        errors.append(other_error)
    if errors:
        failures = [error for error in errors if not isinstance(error, Conflict)]
        facts["failure" if failures else "conflict"] = str((failures or errors)[0])
    if facts and plan.held:
        facts["held"] = plan.held
    return facts
