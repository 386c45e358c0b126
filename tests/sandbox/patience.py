"""Waiting for what other processes do, and looking which there are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest


def wait_for(condition: Callable[[], object], *, within_s: float = 20.0) -> None:
    """Return when it holds. Fails the test when that takes longer."""
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"it did not happen within {within_s:g} s")
        time.sleep(0.01)


def processes_about(directory: Path) -> list[str]:
    """The command lines of the processes that name the directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if str(directory) in command:
                found.append(command)
    return found


async def until(
    holds: Callable[[], object], changed: asyncio.Event, *, within_s: float, seen: Callable[[], object]
) -> None:
    """Wait for a condition, and check the condition after each `changed`. `seen` is shown if the time limit is over."""
    try:
        async with asyncio.timeout(within_s):
            while not holds():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pytest.fail(f"not within {within_s:g}s; seen: {seen()}")
