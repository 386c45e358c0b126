"""The judge: invariants as pure functions over a history.

    verdict = examine(history, run)
    assert not verdict.violations and verdict.checks["S4"] > 0

An invariant is a function `(History, Run) -> Iterator[Violation | None]`. Each yielded value is one check: None if the
invariant holds, or else the violation. `Verdict.checks` counts these checks. If an invariant was never checked, its
count is 0.

The controller acts on its caches, and a cache is older than the server. So each write has a *window*: the last
`Run.lag_s` seconds before the write. The write is correct if at least one state in this window justifies it.

During a fault, the cache may stay as it was before the fault. So if a fault overlaps the window, the window begins
before the fault.

Some rules do not depend on the cache, for example the rule about the owner of a deleted object. These rules have no
window.

Each invariant has a letter and a number. S means safety, which is checked at every revision. L means liveness. Q means
quiescence and load. H0 is about the history itself: it must be complete.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from tests.faults.judge.history import Change, History, shown


class Violation(Struct, frozen=True):
    """A broken invariant. `evidence` are the states and requests that show it."""

    invariant: str
    message: str
    evidence: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n  ".join((f"{self.invariant}: {self.message}", *self.evidence))


class Interval(Struct, frozen=True):
    """A time with faults, in seconds since 1970."""

    start: float
    end: float


class Answer(Struct, frozen=True):
    """An answer that the proxy gave or passed on. `retry_after_s` is None without the header."""

    time: float
    verb: str
    path: str
    code: int
    retry_after_s: float | None = None


class LeaseTimes(Struct, frozen=True):
    """The settings of the leader election in seconds, and the lease."""

    name: str = "vmherd"
    duration_s: float = 15.0
    retry_s: float = 2.0
    slack_s: float = 1.0


class Run(Struct, frozen=True, kw_only=True):
    """What a scenario knows about its run. Everything else follows from the history.

    - `faults`: the times in which the controller did not see or reach the server as usual, crashes included.
    - `lag_s`: the longest age of the controller's caches outside of faults.
    - `settled_from`: from this time on the controller must be at rest; None if the run does not wait for rest.
    - `ended`: the end of the run. None means the last change or request.
    - `reaction_s`: the longest time from a deviation to its repair, outside of faults.
    - `answers`: the answers in the log of the fault proxy, in their order.
    - `lease`: set if several controllers share a lease.
    - `refused`: the times in which every create of a VM was refused.
    - `lost_answers`, `crashes`: how many answers were lost and how many crashes happened. S1 allows no additional
      creates because of them. If there were any, Q3 judges only the writes of statuses.
    """

    faults: tuple[Interval, ...] = ()
    lag_s: float = 5.0
    settled_from: float | None = None
    ended: float | None = None
    reaction_s: float = 30.0
    answers: tuple[Answer, ...] = ()
    lease: LeaseTimes | None = None
    refused: tuple[Interval, ...] = ()
    lost_answers: int = 0
    crashes: int = 0

    def window(self, time: float) -> float:
        """Return the start of the window of a write at `time`. The module's docstring explains windows."""
        start = time - self.lag_s
        for fault in sorted(self.faults, key=lambda each: each.start, reverse=True):
            if fault.start <= time and fault.end >= start:
                start = min(start, fault.start - self.lag_s)
        return start

    def aftermath(self, time: float) -> float:
        """Return the time until which a later write counts as simultaneous with a write at `time`."""
        end = time + self.lag_s
        for fault in sorted(self.faults, key=lambda each: each.start):
            if fault.start <= end and fault.end >= time:
                end = max(end, fault.end + self.lag_s)
        return end

    @property
    def is_disturbed(self) -> bool:
        return bool(self.faults or self.lost_answers or self.crashes)


Finding: TypeAlias = Violation | None
Invariant: TypeAlias = Callable[[History, Run], Iterator[Finding]]


def described(change: Change) -> tuple[str, ...]:
    """Return the evidence for a change: the request, and the object before and after."""
    before = "" if change.before is None else shown(change.before)
    after = "" if change.after is None else shown(change.after)
    author = "" if change.author is None else f"{change.author} by {change.author.user_agent}"
    head = f"revision {change.revision}: {change.kind}/{change.name} {author}"
    return tuple(text for text in (head, before and f"before: {before}", after and f"after: {after}") if text)


def found(number: str, problem: str, evidence: object) -> Finding:
    """Return the violation, or None without a problem. The evidence is a change, or an object to show."""
    if not problem:
        return None
    return Violation(number, problem, described(evidence) if isinstance(evidence, Change) else (shown(evidence),))


INVARIANTS: Final[dict[str, Invariant]] = {}
"""The invariants by number."""


def invariant(number: str) -> Callable[[Invariant], Invariant]:
    """Register an invariant."""

    def register(function: Invariant) -> Invariant:
        assert number not in INVARIANTS, f"{number} is registered twice"
        INVARIANTS[number] = function
        return function

    return register


class Verdict(Struct, frozen=True):
    """The violations, and the number of checks of each invariant."""

    violations: tuple[Violation, ...]
    checks: Mapping[str, int]

    def __str__(self) -> str:
        checked = ", ".join(f"{number} {count}" for number, count in self.checks.items())
        return "\n".join((f"{len(self.violations)} violations; checks: {checked}", *map(str, self.violations)))


def examine(history: History, run: Run, *, only: Collection[str] = ()) -> Verdict:
    """Check all invariants, or only those with the given numbers."""
    _register()
    checks: Counter[str] = Counter()
    violations = []
    for number, function in INVARIANTS.items():
        if only and number not in only:
            continue
        checks[number] = 0
        for finding in function(history, run):
            checks[number] += 1
            if finding is not None:
                violations.append(finding)
    return Verdict(tuple(violations), dict(checks))


def all_invariants() -> set[str]:
    """Return the names of all invariants, for example S1."""
    _register()
    return set(INVARIANTS)


def judge(history: History, run: Run) -> tuple[Violation, ...]:
    """Return the violations of all invariants."""
    return examine(history, run).violations


def _register() -> None:
    """Import the modules with the invariants."""
    from tests.faults.judge import (  # noqa: PLC0415
        invariants_deletions,  # noqa: F401
        invariants_fields,  # noqa: F401
        invariants_liveness,  # noqa: F401
        invariants_objects,  # noqa: F401
        invariants_quiet,  # noqa: F401
        invariants_safety,  # noqa: F401
    )
