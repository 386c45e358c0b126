"""The wait of the tests: a slow reaction fails, and a busy machine fails no test."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.controlplane import waits
from tests.controlplane.waits import REACTION_S, SHOWN, Wait, eventually, reacts


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Wait]:
    """The waits of the test. They are not in the report of the run."""
    found: list[Wait] = []
    monkeypatch.setattr(waits, "waits", found)
    return found


def true_after(seconds: float) -> Any:
    began = time.monotonic()
    return lambda: time.monotonic() - began > seconds


def test_a_reaction_may_take_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert REACTION_S == 5.0
    monkeypatch.setattr(waits, "stalled_s", lambda: 0.0)
    monkeypatch.setattr(waits, "REACTION_S", 0.1)
    with pytest.raises(pytest.fail.Exception, match=r"not within 0.1s: the reaction"):
        reacts(true_after(1), what="the reaction")
    assert reacts(true_after(0))


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


def test_the_machine_counts_the_time_without_a_cpu() -> None:
    before = waits.stalled_s()
    assert 0 <= before <= waits.stalled_s()


def test_the_run_ends_with_the_longest_waits(recorded: list[Wait]) -> None:
    lines: list[str] = []
    reporter: Any = SimpleNamespace(section=lines.append, line=lines.append)
    recorded += [Wait(float(number), "a_test", f"wait {number}") for number in range(20)]
    assert eventually(lambda: "seen", what="the last") == "seen"
    waits.pytest_terminal_summary(reporter)
    assert len(lines) == SHOWN + 1
    assert lines[1] == "  19.0 s  wait 19  (a_test)"
    assert recorded[-1].test.endswith("test_the_run_ends_with_the_longest_waits")
