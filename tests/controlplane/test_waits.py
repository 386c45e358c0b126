"""The wait of the tests: a slow reaction fails, and a busy machine fails no test."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.controlplane import waits
from tests.controlplane.waits import SHOWN, Wait, eventually


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Wait]:
    """The waits of the test. They are not in the report of the run."""
    found: list[Wait] = []
    monkeypatch.setattr(waits, "waits", found)
    return found


def true_after(seconds: float) -> Any:
    began = time.monotonic()
    return lambda: time.monotonic() - began > seconds


def test_a_wait_that_takes_too_long_fails_with_its_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "stalled_s", lambda: 0.0)
    with pytest.raises(pytest.fail.Exception, match=r"not within 0.1s: the end; last seen: False"):
        eventually(true_after(5), within_s=0.1, what="the end")


def test_time_without_a_cpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "stalled_s", time.monotonic)
    assert eventually(true_after(0.3), within_s=0.1)


def test_without_an_end_the_wait_fails_also_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "stalled_s", time.monotonic)
    monkeypatch.setattr(waits, "MOST_S", 0.2)
    with pytest.raises(pytest.fail.Exception):
        eventually(true_after(5), within_s=0.1)


def test_the_run_ends_with_the_longest_waits(recorded: list[Wait]) -> None:
    lines: list[str] = []
    reporter: Any = SimpleNamespace(section=lines.append, line=lines.append)
    recorded += [Wait(float(number), "a_test", f"wait {number}") for number in range(20)]
    assert eventually(lambda: "seen", what="the last") == "seen"
    waits.pytest_terminal_summary(reporter)
    assert len(lines) == SHOWN + 1
    assert lines[1] == "  19.0 s  wait 19  (a_test)"
    assert recorded[-1].test.endswith("test_the_run_ends_with_the_longest_waits")
