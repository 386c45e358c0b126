"""What a reconciler is, what it may ask for afterwards, and how outcomes become that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from controller.runtime.plan import Outcome, Plan, Postponed, Rejected, Unknown, label_of
from informers.errors import ApiError, Forbidden, ServerError, StatusError, TooManyRequests, TransportError
from informers.meta import ObjectKey

LOOK_AGAIN_S = 5.0
"""After a pass that wrote, or that waits for the cache: events wake the key long before, this is the safety net."""


POSTPONED_S = 0.5
"""After a pass that postponed something: no cache shows what it waits for, so nothing wakes the key."""


class AwaitChange(Struct, frozen=True):
    """Nothing left to do until something changes."""


class After(Struct, frozen=True):
    """Look again after so many seconds, whatever happens in between."""

    seconds: float


class Retry(Struct, frozen=True):
    """Something failed: look again with backoff, and not before the server's own `Retry-After`.

    `outage`: the server failed, and not what was asked of it. That must not wear out the key's own patience.
    """

    why: str
    not_before_s: float = 0.0
    outage: bool = False


Result: TypeAlias = AwaitChange | After | Retry


class Report(Struct, frozen=True):
    """One pass, for the log line that tells it: the result, and figures such as `create_done=3`."""

    result: Result
    facts: Mapping[str, object] = {}


class Reconciler(Protocol):
    """Brings one object from where it is to where it should be. Called for one key by one worker at a time."""

    async def reconcile(self, key: ObjectKey) -> Report: ...


def result_of(plan: Plan, outcomes: Iterable[Outcome], *, settled: bool, trouble: ApiError | None = None) -> Result:
    """When to look again, after a plan had these outcomes. `trouble` is what else of the pass failed."""
    outcomes = tuple(outcomes)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Rejected | Unknown)]
    passing = [failure.error for failure in failures if not is_final(failure)]
    if trouble is not None:
        passing.append(trouble)
    if passing:
        return retry_after(*passing)
    waits = [POSTPONED_S] if any(isinstance(outcome, Postponed) for outcome in outcomes) else []
    if plan.requeue_after_s is not None:
        waits.append(plan.requeue_after_s)
    if waits:
        return After(min(waits))
    if failures:
        return AwaitChange()
    return After(LOOK_AGAIN_S) if outcomes or not settled else AwaitChange()


def retry_after(*errors: ApiError) -> Retry:
    """Try again after these, told by the first of them. One that is the server's is enough for an outage: what the
    others are worth shows when it answers again.
    """
    return Retry(
        str(errors[0]),
        not_before_s=max(_retry_after_s(error) for error in errors),
        outage=any(is_outage(error) for error in errors),
    )


def is_outage(error: ApiError) -> bool:
    """Whether the server did not answer, or answered that it cannot do anything of the kind just now."""
    return isinstance(error, TransportError | ServerError | TooManyRequests)


def is_final(failure: Rejected | Unknown) -> bool:
    """Whether trying again is pointless: nothing can be created any more in a namespace that goes away."""
    return isinstance(failure.error, Forbidden) and failure.error.namespace_terminating


def facts_of(plan: Plan, outcomes: Iterable[Outcome], *, trouble: ApiError | None = None) -> dict[str, object]:
    """The figures of a pass that did something: outcomes by action and kind, the first failure, what was held."""
    outcomes = tuple(outcomes)
    names = (f"{label_of(type(outcome.action))}_{label_of(type(outcome))}" for outcome in outcomes)
    facts: dict[str, object] = dict(Counter(names))
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, Rejected | Unknown)]
    if trouble is not None:
        errors.append(trouble)
    if errors:
        facts["failure"] = str(errors[0])
    if facts and plan.held:
        facts["held"] = plan.held
    return facts


def _retry_after_s(error: ApiError) -> float:
    return (error.retry_after_s or 0.0) if isinstance(error, StatusError) else 0.0
