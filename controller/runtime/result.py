"""The interface of a reconciler, the results of a pass, and the function that derives a result from the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from controller.runtime.plan import Outcome, Plan, Postponed, Rejected, Unknown, label_of
from informers.errors import ApiError, Forbidden, ServerError, StatusError, TooManyRequests, TransportError
from informers.meta import ObjectKey

LOOK_AGAIN_S = 5.0
"""The delay after a pass that wrote something or that waits for the cache. Usually a watch event starts the next pass
much earlier. This delay is the fallback."""


POSTPONED_S = 0.5
"""The delay after a pass that postponed a create. The create waits for a disk. No cache contains disks, so no event
would start the next pass."""


class AwaitChange(Struct, frozen=True):
    """Nothing is left to do until an object changes. The next event starts the next pass."""


class After(Struct, frozen=True):
    """Reconcile again after this number of seconds, even if an event starts another pass earlier."""

    seconds: float


class Retry(Struct, frozen=True):
    """The pass failed: reconcile again with backoff, but not before the server's `Retry-After` (`not_before_s`).

    `outage` is true for a server-side failure. Such a failure does not count towards the key's backoff.
    """

    why: str
    not_before_s: float = 0.0
    outage: bool = False


Result: TypeAlias = AwaitChange | After | Retry


class Report(Struct, frozen=True):
    """The data of the log line of one pass: the result, and facts such as `create_done=3`."""

    result: Result
    facts: Mapping[str, object] = {}


class Reconciler(Protocol):
    """Brings one object to its desired state. For each key, at most one worker at a time calls `reconcile`."""

    async def reconcile(self, key: ObjectKey) -> Report: ...


def result_of(plan: Plan, outcomes: Iterable[Outcome], *, settled: bool, other_error: ApiError | None = None) -> Result:
    """The result of a pass whose plan had these outcomes: when to reconcile again, and how.

    `other_error` is an error of the pass outside its plan, for example of the status write. With `settled=False` the
    cache does not show all of our own writes yet.
    """
    outcomes = tuple(outcomes)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Rejected | Unknown)]
    temporary = [failure.error for failure in failures if not is_final(failure)]
    if other_error is not None:
        temporary.append(other_error)
    if temporary:
        return retry_after(*temporary)
    waits = [POSTPONED_S] if any(isinstance(outcome, Postponed) for outcome in outcomes) else []
    if plan.requeue_after_s is not None:
        waits.append(plan.requeue_after_s)
    if waits:
        return After(min(waits))
    if failures:
        return AwaitChange()
    return After(LOOK_AGAIN_S) if outcomes or not settled else AwaitChange()


def retry_after(*errors: ApiError) -> Retry:
    """The retry after these errors, with the text of the first. One server-side error makes this an outage; the other
    errors are judged again once the server answers.
    """
    return Retry(
        str(errors[0]),
        not_before_s=max(_retry_after_s(error) for error in errors),
        outage=any(is_outage(error) for error in errors),
    )


def is_outage(error: ApiError) -> bool:
    """True if the server did not answer, or answered that it cannot process requests now (5xx or 429)."""
    return isinstance(error, TransportError | ServerError | TooManyRequests)


def is_final(failure: Rejected | Unknown) -> bool:
    """True if a retry cannot succeed: the namespace is being deleted, so nothing can be created in it."""
    return isinstance(failure.error, Forbidden) and failure.error.namespace_terminating


def facts_of(plan: Plan, outcomes: Iterable[Outcome], *, other_error: ApiError | None = None) -> dict[str, object]:
    """The facts for the log line of a pass: the number of outcomes by action and type, the first failure, and the
    reason why something is held. Empty if the pass did nothing and nothing failed.
    """
    outcomes = tuple(outcomes)
    names = (f"{label_of(type(outcome.action))}_{label_of(type(outcome))}" for outcome in outcomes)
    facts: dict[str, object] = dict(Counter(names))
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, Rejected | Unknown)]
    if other_error is not None:
        errors.append(other_error)
    if errors:
        facts["failure"] = str(errors[0])
    if facts and plan.held:
        facts["held"] = plan.held
    return facts


def _retry_after_s(error: ApiError) -> float:
    return (error.retry_after_s or 0.0) if isinstance(error, StatusError) else 0.0
