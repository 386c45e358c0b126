"""The state of a set or pool in one word, and the conditions that tools wait for (R11, P17).

Helm, Flux, Argo CD and other tools wait for `Reconciling` and `Stalled`, at most one of which is true, with the rules
of kstatus: an object with `Reconciling` is in progress, one with `Stalled` has failed, and one with neither is as its
spec asks. `Available` and `Progressing` mean what they mean on a Deployment, for `kubectl wait`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true, merge_conditions, time_text, with_timezone
from controller.apimachinery.field_error import INVALID_SPEC
from controller.kubevirt.problems import Problem, foreign_finalizers, terminating_problem, text_of
from controller.replicas.conditions import (
    AVAILABLE,
    DEADLINE,
    PROGRESSING,
    RECONCILING,
    REPLICA_FAILURE,
    REPLICA_PAUSED,
    STALLED,
)
from controller.replicas.wrong_annotations import Wrong, problem_of
from controller.runtime.actions import Plan
from controller.runtime.members.groups import Members
from controller.runtime.waits import Wait, Why

S = TypeVar("S", bound=Struct)

INTERNAL_ERROR: Final = "InternalError"


class Word(StrEnum):
    """The values of `printableStatus`. The documentation of the status has the rule for each word."""

    RUNNING = "Running"
    STOPPED = "Stopped"
    PAUSED = "Paused"
    SCALING = "Scaling"
    UPDATING = "Updating"
    HEALING = "Healing"
    DEGRADED = "Degraded"
    ROLLED_BACK = "RolledBack"


MESSAGES: Final[Mapping[str, str]] = {
    Word.SCALING: "virtual machines are created, started or deleted",
    Word.UPDATING: "virtual machines get the current template or finalizer",
    Word.HEALING: "failed virtual machines are replaced",
    Word.DEGRADED: "virtual machines are not ready",
}
"""The message of the condition `Reconciling` if no virtual machine has a problem."""


_STARTS: Final[Mapping[str, Word]] = {
    Word.UPDATING: Word.UPDATING,
    Word.RUNNING: Word.DEGRADED,
    Word.DEGRADED: Word.DEGRADED,
}
"""The word while VMs start, by the word before. After another word it is `Scaling`."""


class Stall(Struct, frozen=True):
    """The reason why an object does not progress until a user changes something."""

    reason: str
    message: str


class Health(Struct, frozen=True):
    """The state of a set or pool: the word, the text of the first problem or "", and the stall or None."""

    word: str
    problem: str = ""
    stall: Stall | None = None


class Activity(Struct, frozen=True, kw_only=True):
    """The work that is left. `heals`, `scales` and `updates` are True while the controller does this. `starts` is True
    if a VM that should run is not ready, and `runs` if a VM should run.
    """

    heals: bool = False
    scales: bool
    updates: bool
    starts: bool
    runs: bool

    def word(self, *, has_problem: bool, previous: str) -> Word:
        """Return the word for this activity. `previous` is the word of the present status."""
        if self.heals:
            return Word.HEALING
        if self.scales:
            return Word.SCALING
        if self.updates:
            return Word.UPDATING
        if has_problem:
            return Word.DEGRADED
        if self.starts:
            # Only the previous status shows why the last VMs start: an update, or a VM that was ready has restarted.
            return _STARTS.get(previous, Word.SCALING)
        return Word.RUNNING if self.runs else Word.STOPPED


Trouble: TypeAlias = tuple[Problem, datetime | None]
"""The problem of a VM or VMI, and the start of its progress deadline. The start is None if it has no deadline."""

Waits: TypeAlias = Sequence[Wait] | None
"""The waits of the plan, or None if no plan could be made, because the caches do not show all writes yet."""

_STALLS_OF_WAITS: Final = frozenset({"UpdateHeld", "TakeoverHeld", "ReplicasLimited", "ReleaseHeld", "NamesTaken"})


class Snapshot(Protocol):
    """The part of a snapshot that the health and the status need."""

    @property
    def owner(self) -> Any: ...

    @property
    def now(self) -> datetime: ...

    @property
    def settled(self) -> bool: ...

    @property
    def wrong_annotations(self) -> tuple[Wrong, ...]: ...


def health_of(
    snapshot: Snapshot,
    troubles: Sequence[Trouble],
    activity: Activity,
    waits: Waits,
    *,
    deadline: timedelta,
    failure: Condition | None,
    late: str = "",
    asides: Iterable[str] = (),
) -> Health:
    """Return the state of a valid set or pool.

    `troubles` are the problems of its VMs, the most important first. `deadline` is the progress deadline. `failure` is
    the new condition `ReplicaFailure`, or None. `late` says which live change has missed the deadline. `asides` are
    problems that are no failures of the set or pool, or "". A missed deadline of a VM comes before the stall of a wait.
    """
    old = snapshot.owner.status
    conditions = old.conditions if old is not None else None
    texts = [*texts_of(conditions), *(problem.text for problem, _ in troubles)]
    now, troubles = snapshot.now, [(problem.after(texts), since) for problem, since in troubles]
    slow = [problem.text for problem, _ in troubles if problem.is_slow]
    troubles = [each for each in troubles if not each[0].is_slow]
    overdue = next((problem for problem, since in troubles if is_overdue(since, now, deadline)), None)
    # The condition in the present status has the time of the first failure.
    first = find_true(conditions, REPLICA_FAILURE) if failure is not None else None
    stall = _stall_of_waits(waits, conditions) or (Stall(DEADLINE, late) if late else None)
    if overdue is not None:
        stall = Stall(DEADLINE, overdue.text)
    elif first is not None and is_overdue(with_timezone(first.last_transition_time), now, deadline):
        stall = Stall(DEADLINE, text_of(failure))
    if stall is not None:
        return Health(Word.DEGRADED, stall.message, stall)
    if failure is not None:
        return Health(Word.DEGRADED, text_of(failure))
    problem = troubles[0][0].text if troubles else ""
    previous = word_of(old.printable_status, conditions) if old is not None else ""
    word = activity.word(has_problem=bool(problem), previous=previous)
    aside = next(filter(None, (*asides, *slow[:1])), "")
    return Health(word, problem or aside or _held(waits, old, now))


def _stall_of_waits(waits: Waits, conditions: Iterable[Condition] | None) -> Stall | None:
    if waits is not None:
        return next((Stall(each.stall, each.text) for each in waits if each.stall), None)
    old = find_true(conditions, STALLED)
    is_kept = old is not None and old.reason in _STALLS_OF_WAITS
    return Stall(old.reason or "", old.message or "") if old is not None and is_kept else None


def _held(waits: Waits, old: Any, now: datetime) -> str:
    """Return the first wait that only a user can end, or "". What a setting asks for comes after the others."""
    said = (old.problem or "") if old is not None else ""
    if waits is None:
        return said
    asks = (each for each in waits if each.why in (Why.BY_HAND, Why.CHOICE))
    first = next(chain((each for each in waits if each.needs_user), asks), None)
    return dated(first.text, said, now) if first is not None else ""


_DATED: Final = re.compile(r"(.*), since (\S+)")
_COUNTED: Final = re.compile(r"\d+|s\b|\b(?:is|are|have|has|it|its|them|their)\b")


def dated(text: str, said: str, now: datetime) -> str:
    """Return the text with the time since which it holds. `said` is the problem in the present status, which has the
    time if it has the same text. Only numbers in the text may change, with the forms of the words that they count.
    """
    before = _DATED.fullmatch(said)
    is_same = before is not None and _COUNTED.sub("", before[1]) == _COUNTED.sub("", text)
    return f"{text}, since {before[2] if before is not None and is_same else time_text(now)}"


def told_after(deadline: timedelta) -> timedelta:
    """Return the time after which the status names a member that starts or ends slowly. It has not failed then."""
    return min(timedelta(seconds=60), deadline)


def held_by_others(members: Members[Any]) -> str:
    """Return the problem of the first member that is being deleted and has a finalizer of another program, or ""."""
    held = members.where(lambda each: bool(foreign_finalizers(each.metadata)))
    return min((terminating_problem(each.metadata).text for each in held.firsts()), default="")


def terminating_troubles(members: Members[Any], now: datetime, deadline: timedelta) -> list[Trouble]:
    """Return one problem for each group of VMs or VMIs that are terminating for long (P22). It is slow at first."""
    told = told_after(deadline)
    late = members.where(lambda each: is_overdue(with_timezone(each.metadata.deletion_timestamp), now, told))
    problems = [terminating_problem(each.metadata) for each in late.firsts()]
    problems = [replace(each, is_slow=not is_overdue(each.since, now, deadline)) for each in problems]
    return [(each, each.since) for each in sorted(problems, key=lambda each: (each.is_slow, each.name))]


def is_overdue(since: datetime | None, now: datetime, deadline: timedelta) -> bool:
    return since is not None and now - since >= deadline


def plan_deadline(starts: Iterable[datetime | None], now: datetime, deadline: timedelta) -> Plan:
    """Ask for a reconciliation when the next deadline ends: the status becomes stalled. `starts` are the times at which
    VMs became unready, or None.
    """
    remaining = [since + deadline - now for since in starts if since is not None and now - since < deadline]
    if not remaining:
        return Plan()
    # The clock of a node may be ahead of our clock. So the wait is never longer than the deadline.
    return Plan(requeue_after_s=min(*remaining, deadline).total_seconds())


def plan_telling(starts: Iterable[datetime | None], now: datetime, deadline: timedelta) -> Plan:
    """Return a plan that asks for a reconciliation when the status names the next slow member (`told_after`)."""
    return plan_deadline(starts, now, told_after(deadline))


def invalid(message: str) -> Health:
    return Health(Word.DEGRADED, message, Stall(INVALID_SPEC, message))


def text_of_defect(error: BaseException) -> str:
    said = " ".join(str(error).split())[:200]
    return f"vmherd cannot process this object: {type(error).__name__}{': ' if said else ''}{said}"


class DefectStatus(Struct, frozen=True, rename="camel"):
    """The part of a status that says why the rules failed. The other fields keep their values."""

    observed_generation: int | None
    printable_status: str
    problem: str
    conditions: tuple[Condition, ...] | None


def defect_status(owner: Any, error: BaseException, now: datetime) -> DefectStatus:
    """Return the status of a set or pool whose rules raised an unexpected exception. It is stalled."""
    message = text_of_defect(error)
    ours = progress_conditions(Health(Word.DEGRADED, message, Stall(INTERNAL_ERROR, message)))
    old = owner.status.conditions if owner.status is not None else None
    return DefectStatus(owner.metadata.generation, Word.DEGRADED, message, merge_conditions(old, ours, now))


def texts_of(conditions: Iterable[Condition] | None) -> tuple[str, ...]:
    found = (find_true(conditions, type_) for type_ in (RECONCILING, STALLED))
    return tuple(each.message for each in found if each is not None and each.message)


def word_of(printable_status: str | None, conditions: Iterable[Condition] | None) -> str:
    """Return the word of a status. KubeVirt's CRDs do not have the field, so the condition is read too."""
    reconciling = find_true(conditions, RECONCILING)
    return printable_status or (reconciling.reason or "" if reconciling is not None else "")


def progress_conditions(health: Health) -> Mapping[str, Condition | None]:
    """Return `Progressing`, `Reconciling` and `Stalled`, or None for one that is not true. `Progressing` says nothing
    that the word and `Stalled` do not say, so it is never the reason for a write.
    """
    reconciling = stalled = None
    progressing = Condition(type=PROGRESSING, status="True", reason="Complete")
    if health.stall is not None:
        stalled = Condition(type=STALLED, status="True", reason=health.stall.reason, message=health.stall.message)
        progressing = replace(stalled, type=PROGRESSING, status="False")
    elif health.word in MESSAGES:
        message = health.problem or MESSAGES[health.word]
        reconciling = Condition(type=RECONCILING, status="True", reason=str(health.word), message=message)
        progressing = Condition(type=PROGRESSING, status="True", reason=str(health.word))
    elif health.word == Word.PAUSED:
        progressing = Condition(type=PROGRESSING, status="Unknown", reason=str(Word.PAUSED))
    return {RECONCILING: reconciling, STALLED: stalled, PROGRESSING: progressing}


def availability(wanted: int, ready: int, most_unavailable: int) -> Condition:
    """Return `Available`: true if as many are ready as an update leaves, or all if an update may take all."""
    if ready >= (wanted - most_unavailable if most_unavailable < wanted else wanted):
        return Condition(type=AVAILABLE, status="True", reason="MinimumReplicasAvailable")
    return Condition(type=AVAILABLE, status="False", reason="MinimumReplicasUnavailable")


def with_health(
    status: S, snapshot: Snapshot, health: Health, ours: Mapping[str, Condition | None], *, most_unavailable: int = 0
) -> S:
    """Return the status with the word, the problem and the conditions: `ours`, the other ones of vmherd, and those of
    other writers. `observedGeneration` is the generation that the plan observed (see `runtime.status.recounted`).
    """
    owner = snapshot.owner
    if owner.spec.paused:
        health = Health(Word.PAUSED)
    wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
    available = availability(wanted, getattr(status, "ready_replicas", None) or 0, most_unavailable)
    progress: Any = {**ours, AVAILABLE: available, **progress_conditions(health)}
    old = owner.status.conditions if owner.status is not None else None
    conditions = merge_conditions(old, progress, snapshot.now)
    paused = find_true(conditions, REPLICA_PAUSED)
    since = paused.last_transition_time if paused is not None else None
    held = f"paused since {time_text(since)}" if since is not None else ""
    return replace(
        status,
        observed_generation=owner.metadata.generation,
        printable_status=str(health.word),
        problem=health.problem or problem_of(snapshot.wrong_annotations) or held or None,
        conditions=conditions,
    )
