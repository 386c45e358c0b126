"""Functions that list processes and wait for them."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest


def wait_for(condition: Callable[[], object], *, within_s: float = 60.0) -> None:
    """Wait until the condition is true. Fails the test after `within_s` seconds."""
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"it did not happen within {within_s:g} s")
        time.sleep(0.01)


def processes_about(directory: Path) -> list[str]:
    """Return the command lines of all processes that have this directory in their command line."""
    return [*commands_about(directory).values()]


def commands_about(directory: Path) -> dict[int, str]:
    """Return the same command lines by pid."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if str(directory) in command:
                found[int(entry.parent.name)] = command
    return found


async def until(
    holds: Callable[[], object], changed: asyncio.Event, *, within_s: float, seen: Callable[[], object]
) -> None:
    """Call `holds` now, and again each time that `changed` is set, until `holds` returns true. After a timeout, the
    test fails and shows `seen()`.
    """
    try:
        async with asyncio.timeout(within_s):
            while not holds():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pytest.fail(f"not within {within_s:g}s; seen: {seen()}")
