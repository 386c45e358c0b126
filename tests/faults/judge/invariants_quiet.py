"""Invariants about rest and load: Q1 to Q3 and Q5. Q4, the limits at scale, is for the benchmarks.

How the catalogue's invariants are worded for this controller:

- Q1: at rest, the only requests are watches and the lease (G4). A watch that expired needs a list, so a resource may
  be listed `LISTS` times a minute. At any time, a successful patch changes something. The exception is a patch that
  consists of tests only.
- Q2: a request for the same object fails at most `FAILURES` times in ten seconds: the back-off of a key begins with 5
  ms and doubles. All failures of a run together are limited, too: a hundred may come at once, and then ten a second.
- Q3: without faults, a member costs one create request and at most one delete request, and is patched at most `PATCHES`
  times. A write that lost a race against another writer (409) is tried again and does not count. Within each second,
  the status of an owner is written at most `STATUS_PER_S` times, plus one time for each other write.
- Q5: after an answer with Retry-After, the same request is not repeated before this time is over. A time over
  300 seconds counts as 300 seconds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.faults.judge.history import History, Request, shown
from tests.faults.judge.judge import Finding, Run, Violation, invariant
from tests.faults.judge.states import CHILD_OF, DISKS, OWNERS

TEN_S = 10.0
FAILURES = 20
FAILURES_PER_S, FAILURE_BURST = 10.0, 100
STATUS_PER_S = 8
"""The number of status writes in a second that need no other write.

Each of these writes shows another state. A change of the template gives one state. A restart gives three: the VM is not
ready, has a new VMI, and is ready. Without a fault, `pool-undo` writes the status of two VMs 11 times in one second,
because simulated VMs restart within a quarter of a second. In this second there are four other writes. So 7 writes need
no other write; the eighth is a reserve.
"""

MAX_EVIDENCE = 20
CONFLICT = 409
LISTS, WATCHES = 3, 12
"""The largest number of lists and watches of a resource in a minute, at rest."""

PATCHES = 8
LONGEST_RETRY_AFTER_S = 300.0
EARLY_S = 0.05
"""The tolerance for a request that arrives too early: two clocks measure the time."""


@invariant("Q1")
def q1_at_rest_there_are_no_requests_and_no_write_is_in_vain(history: History, run: Run) -> Iterator[Finding]:
    for write in history.ours:
        if write.verb != "patch" or not write.kind or not write.succeeded or write.subresource not in ("", "status"):
            continue
        in_vain = bool(write.revision) and history.effect(write) is None and not _only_tests(write)
        yield Violation("Q1", f"{write} changes nothing", (shown(write.body),)) if in_vain else None
    if run.settled_from is None:
        return
    until = float("inf") if run.ended is None else run.ended
    noise = [each for each in history.ours if run.settled_from <= each.time <= until and not _is_quiet(each)]
    if noise:
        evidence = tuple(f"{each} {shown(each.body)}" for each in noise[:MAX_EVIDENCE])
        yield Violation("Q1", f"{len(noise)} requests at rest, the first is {noise[0]}", evidence)
    for verb, resource, most in _frequent_reads(history, run.settled_from):
        yield Violation("Q1", f"{most} requests to {verb} {resource} in a minute, at rest")
    if not noise:
        yield None


def _only_tests(write: Request) -> bool:
    return isinstance(write.body, list) and all(step.get("op") == "test" for step in write.body)


def _frequent_reads(history: History, since: float) -> Iterator[tuple[str, str, int]]:
    """Yield the resources that are listed or watched again too often at rest."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in history.ours:
        if each.verb in ("list", "watch") and each.time >= since:
            times[each.verb, each.resource].append(each.time)
    for (verb, resource), own in times.items():
        most = _most_within(own, 60.0)
        if most > (LISTS if verb == "list" else WATCHES):
            yield verb, resource, most


def _is_quiet(request: Request) -> bool:
    """Return True for a request that is allowed at rest. The list of an informer comes before its watch."""
    return request.verb in ("watch", "list") or request.resource == "leases"


@invariant("Q2")
def q2_failures_are_retried_with_a_back_off(history: History, run: Run) -> Iterator[Finding]:
    failures: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for each in history.ours:
        if each.code >= 400 and each.resource != "leases" and not _is_answer(each):
            failures[each.verb, each.resource, each.subresource, each.name].append(each.time)
    for answer in run.answers:
        if answer.code >= 400 and answer.verb.upper() != "GET":
            failures["proxy", answer.verb, answer.path].append(answer.time)
    for target, times in failures.items():
        if target[:2] == ("proxy", "POST"):
            continue  # creates of several objects share a path
        most = _most_within(times, TEN_S)
        message = f"{' '.join(target)} fails {most} times in {TEN_S:g} s, allowed are {FAILURES}"
        yield Violation("Q2", message) if most > FAILURES else None
    times = sorted(time for target, own in failures.items() if target[0] != "proxy" for time in own)
    for index, time in enumerate(times):
        first = max(index - 2 * FAILURE_BURST, 0)
        allowed = FAILURE_BURST + FAILURES_PER_S * (time - times[first])
        message = f"{index - first} failed requests in {time - times[first]:.1f} s"
        yield Violation("Q2", message) if index - first > allowed + 1 else None


def _is_answer(request: Request) -> bool:
    """Return True if a read was answered with 404: the disk or the object does not exist."""
    return request.verb == "get" and request.code == 404


def _most_within(times: Iterable[float], seconds: float) -> int:
    """Return the largest number of these times that lie within one period of this length."""
    times = sorted(times)
    most = first = 0
    for index, time in enumerate(times):
        while time - times[first] > seconds:
            first += 1
        most = max(most, index - first + 1)
    return most


@invariant("Q3")
def q3_a_member_costs_few_requests(history: History, run: Run) -> Iterator[Finding]:
    written: Counter[tuple[str, str, str]] = Counter()
    statuses: dict[str, list[float]] = defaultdict(list)
    others: list[float] = []
    for write in history.ours:
        if not write.is_write or not write.kind or write.code == CONFLICT:
            continue
        if write.subresource == "status" and write.kind in OWNERS:
            statuses[f"{write.kind}/{write.name}"].append(write.time)
        elif write.kind in (*CHILD_OF.values(), *DISKS):
            uid = _uid(history, write)
            written[write.verb, f"{write.kind}/{write.name}", uid] += 1
            others.append(write.time)
    for name, times in statuses.items():
        for index, time in enumerate(times):
            most = sum(time - 1.0 < each <= time for each in times[: index + 1])
            allowed = STATUS_PER_S + sum(time - 1.0 < each <= time for each in others)
            message = f"the status of {name} is written {most} times in a second, allowed are {allowed}"
            yield Violation("Q3", message) if most > allowed else None
    if run.is_disturbed:
        return
    for (verb, name, _), number in written.items():
        allowed = PATCHES if verb == "patch" else 1
        message = f"{name}: {number} requests to {verb}, allowed are {allowed}"
        yield Violation("Q3", message) if number > allowed else None


def _uid(history: History, write: Request) -> str:
    """Return the UID of the object that a write concerns, or "" if it is not known."""
    effect = history.effect(write)
    if effect is not None:
        return effect.uid
    options = write.body if isinstance(write.body, dict) else {}
    return str((options.get("preconditions") or options.get("metadata") or {}).get("uid") or "")


@invariant("Q5")
def q5_retry_after_is_honoured(history: History, run: Run) -> Iterator[Finding]:
    for index, answer in enumerate(run.answers):
        if answer.retry_after_s is None or answer.code not in (429, 503):
            continue
        due = answer.time + min(answer.retry_after_s, LONGEST_RETRY_AFTER_S) - EARLY_S
        same = (each for each in run.answers[index + 1 :] if (each.verb, each.path) == (answer.verb, answer.path))
        early = next((each for each in same if each.time < due), None)
        message = f"{answer.verb} {answer.path} is repeated before Retry-After: {answer.retry_after_s:g}"
        evidence = (f"answered {answer.time:.3f}, repeated {early.time:.3f}",) if early is not None else ()
        yield Violation("Q5", message, evidence) if early is not None else None
