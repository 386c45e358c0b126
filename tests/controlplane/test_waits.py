"""The wait of the tests: a slow reaction fails, and a busy machine fails no test."""

import time
from typing import Any

import pytest

from tests.controlplane import waits
from tests.controlplane.waits import Wait, eventually


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
