"""The one way to wait for what the control plane and the controller do, and the ten longest waits of a run.

`reacts` waits for a reaction: the controller does at once what the test asks. It may take five seconds. `eventually`
waits for more work: many VMs, the start of a program, a garbage collection, or a delay of the rules.

The limits do not count the time in which tasks of the machine waited for a CPU, so a busy machine fails no test.
"""

import heapq
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

T = TypeVar("T")

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.25
REACTION_S = 5.0
WORK_S = 60.0
"""The usual limit for more work than a reaction."""

MOST_S = 90.0
"""After this time the test fails, also on a busy machine. A wait with a longer limit ends at its limit."""

SHOWN = 10
"""The number of the longest waits in the report."""

PRESSURE = Path("/proc/pressure/cpu")


class Wait(NamedTuple):
    seconds: float
    test: str
    what: str


waits: list[Wait] = []
"""All waits of this process, for the report at the end of the run."""


def eventually(look: Callable[[], T], *, within_s: float = WORK_S, what: str = "") -> T:
    """Call `look` until it returns a true value, and return that value. After `within_s`, the test fails.

    Most calls are requests to the API server. So a slow `look` is called less often, and each `look` is called less
    often after a long wait.
    """
    began = asked = time.monotonic()
    stalled = stalled_s()
    what = what or str(look)
    while not (seen := look()):
        now = time.monotonic()
        waited, took = now - began, now - asked
        if waited - (stalled_s() - stalled) > within_s or waited > max(MOST_S, within_s):
            pytest.fail(f"not within {within_s:g}s: {what}; last seen: {seen!r}")
        time.sleep(max(SHORTEST_PAUSE_S, 2 * took, min(waited / 10, LONGEST_PAUSE_S)))
        asked = time.monotonic()
    note_wait(time.monotonic() - began, what)
    return seen


def reacts(look: Callable[[], T], *, what: str = "") -> T:
    """Call `look` until it returns a true value, and return that value. After five seconds, the test fails."""
    return eventually(look, within_s=REACTION_S, what=what or str(look))


def note_wait(seconds: float, what: str) -> None:
    waits.append(Wait(seconds, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0], what))


def stalled_s() -> float:
    """The time since the start of the machine in which a task waited for a CPU. Without this count, half the time of
    the clock.
    """
    try:
        total = re.search(r"^some .*total=(\d+)", PRESSURE.read_text(), re.MULTILINE)
    except OSError:
        total = None
    return int(total[1]) / 1e6 if total else time.monotonic() / 2


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker sends its longest waits to the controller of the run."""
    if output := getattr(session.config, "workeroutput", None):
        output["waits"] = [tuple(wait) for wait in heapq.nlargest(SHOWN, waits)]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the waits of a worker that has ended. A worker that crashed sends none."""
    waits.extend(Wait(*each) for each in getattr(node, "workeroutput", {}).get("waits", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if waits:
        terminalreporter.section(f"longest {SHOWN} waits")
    for wait in heapq.nlargest(SHOWN, waits):
        terminalreporter.line(f"{wait.seconds:6.1f} s  {wait.what}  ({wait.test})")
