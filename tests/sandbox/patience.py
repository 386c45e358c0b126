"""Waiting for what another process does, which has no event to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def wait_for(condition: Callable[[], object], *, within_s: float = 20.0) -> None:
    """Return when it holds. Fails the test when that takes longer."""
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"it did not happen within {within_s:g} s")
        time.sleep(0.01)
