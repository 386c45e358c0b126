"""Waits for what the control plane and the controller do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.25


def eventually(look: Callable[[], T], *, within_s: float = 60.0, what: str = "") -> T:
    """Call `look` until it returns a true value, and return that value. After `within_s`, the test fails.

    The default limit is long, because other tests may run at the same time. Most calls are requests to the API server.
    So a slow `look` is called less often, and each `look` is called less often after a long wait.
    """
    began = asked = time.monotonic()
    while not (seen := look()):
        now = time.monotonic()
        waited, took = now - began, now - asked
        if waited > within_s:
            pytest.fail(f"not within {within_s:g}s: {what or look}; last seen: {seen!r}")
        time.sleep(max(SHORTEST_PAUSE_S, 2 * took, min(waited / 10, LONGEST_PAUSE_S)))
        asked = time.monotonic()
    return seen


def steady(look: Callable[[], T], *, for_s: float = 0.6, within_s: float = 30.0) -> T:
    """Wait until the value of `look` stops changing, and return the value.

    The audit log shows requests with a delay.
    """
    seen, since = look(), time.monotonic()
    give_up = since + within_s
    while time.monotonic() - since < for_s:
        if time.monotonic() > give_up:
            pytest.fail(f"not steady within {within_s:g}s: {look}; last seen: {seen!r}")
        time.sleep(0.05)
        if (now := look()) != seen:
            seen, since = now, time.monotonic()
    return seen


def stays(look: Callable[[], object], *, for_s: float = 1.0, what: str = "") -> None:
    """Fail the test if `look` returns a false value during the next `for_s` seconds."""
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        seen = look()
        if not seen:
            pytest.fail(f"did not stay: {what or look}")
        time.sleep(0.05)
