"""The state of a set or pool in one word, and the conditions `Reconciling` and `Stalled` (R11, P17).

Helm, Flux, Argo CD and other tools wait for these two conditions, with the rules of kstatus: an object with the
condition `Reconciling` is in progress, and an object with the condition `Stalled` has failed. An object with neither
condition is as its spec asks. At most one of the two conditions is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition, find_true, with_timezone
from controller.apimachinery.field_error import INVALID_SPEC
from controller.kubevirt.problems import Problem, text_of
from controller.replicas.conditions import RECONCILING, REPLICA_FAILURE, STALLED
from controller.runtime.actions import Plan

PROGRESS_DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"


class Word(StrEnum):
    """The values of `printableStatus`. The documentation of the status has the rule for each word."""

    RUNNING = "Running"
    STOPPED = "Stopped"
    PAUSED = "Paused"
    SCALING = "Scaling"
    UPDATING = "Updating"
    HEALING = "Healing"
    DEGRADED = "Degraded"


MESSAGES: Final[Mapping[str, str]] = {
    Word.SCALING: "virtual machines are created, started or deleted",
    Word.UPDATING: "virtual machines get the current template or finalizer",
    Word.HEALING: "failed virtual machines are replaced",
    Word.DEGRADED: "virtual machines are not ready",
}
"""The message of the condition `Reconciling` if no virtual machine has a problem."""


class Stall(Struct, frozen=True):
    """The reason why an object does not progress until a user changes something."""

    reason: str
    message: str


class Health(Struct, frozen=True):
    """The state of a set or pool: the word, the text of the first problem or "", and the stall or None."""

    word: str
    problem: str = ""
    stall: Stall | None = None


class Waits(Struct, frozen=True):
    """The problems of the VMs or VMIs of an object, in a fixed order. `overdue` are the problems after the progress
    deadline.
    """

    problems: tuple[Problem, ...] = ()
    overdue: tuple[Problem, ...] = ()


def sort_waits(found: Iterable[tuple[Problem | None, datetime | None]], now: datetime, deadline: timedelta) -> Waits:
    """Return the problems, with the overdue problems separately.

    Each entry of `found` is the problem of a VM that is not ready, or None, and the start of the wait for this VM. The
    start is None if the wait has no deadline.
    """
    waits = [(problem, since) for problem, since in found if problem is not None]
    overdue = (problem for problem, since in waits if is_overdue(since, now, deadline))
    return Waits(tuple(problem for problem, _ in waits), tuple(overdue))


def is_overdue(since: datetime | None, now: datetime, deadline: timedelta) -> bool:
    return since is not None and now - since >= deadline


def plan_deadline(starts: Iterable[datetime | None], now: datetime, deadline: timedelta) -> Plan:
    """Return a plan that asks for a reconciliation when the next deadline ends. Then the status becomes stalled.

    `starts` are the times at which VMs became unready. None stands for an unknown time.
    """
    remaining = [since + deadline - now for since in starts if since is not None and now - since < deadline]
    if not remaining:
        return Plan()
    # The clock of a node may be ahead of our clock. So the wait is never longer than the deadline.
    return Plan(requeue_after_s=min(*remaining, deadline).total_seconds())


def stall_of(
    waits: Waits,
    failure: Condition | None,
    old: Iterable[Condition] | None,
    *,
    now: datetime,
    deadline: timedelta,
) -> Stall | None:
    """Return the stall of an object whose progress deadline is over, or None.

    `failure` is the new condition `ReplicaFailure`, or None. The argument `old` contains the conditions of the present
    status. They have the time of the first failure.
    """
    if waits.overdue:
        return Stall(PROGRESS_DEADLINE_EXCEEDED, waits.overdue[0].text_after(texts_of(old)))
    first = find_true(old, REPLICA_FAILURE) if failure is not None else None
    since = with_timezone(first.last_transition_time) if first is not None else None
    if failure is not None and is_overdue(since, now, deadline):
        return Stall(PROGRESS_DEADLINE_EXCEEDED, text_of(failure))
    return None


def invalid(message: str) -> Health:
    return Health(Word.DEGRADED, message, Stall(INVALID_SPEC, message))


def texts_of(conditions: Iterable[Condition] | None) -> tuple[str, ...]:
    """Return the texts about problems in the conditions of a status."""
    found = (find_true(conditions, type_) for type_ in (RECONCILING, STALLED))
    return tuple(each.message for each in found if each is not None and each.message)


def word_of(printable_status: str | None, conditions: Iterable[Condition] | None) -> str:
    """Return the word of a status. KubeVirt's CRDs do not have the field, so the condition is read too."""
    reconciling = find_true(conditions, RECONCILING)
    return printable_status or (reconciling.reason or "" if reconciling is not None else "")


def progress_conditions(health: Health) -> Mapping[str, Condition | None]:
    """Return the conditions `Reconciling` and `Stalled`, or None for a condition that is not true."""
    reconciling = stalled = None
    if health.stall is not None:
        stalled = Condition(type=STALLED, status="True", reason=health.stall.reason, message=health.stall.message)
    elif health.word in MESSAGES:
        message = health.problem or MESSAGES[health.word]
        reconciling = Condition(type=RECONCILING, status="True", reason=str(health.word), message=message)
    return {RECONCILING: reconciling, STALLED: stalled}
