"""Asks the user before a command destroys something."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from plugin.connection import Failed
from plugin.printing import clean, note


async def confirm(what: str, *, yes: bool) -> None:
    """Return if the user agrees. `what` is a sentence about what is lost. `yes` is the flag --yes.

    Raise Failed if the user does not agree, or if stdin is no terminal.
    """
    if yes:
        note(f"Warning: {what}")
        return
    if not is_interactive():
        raise Failed(f"error: {what}; --yes allows this")
    print(clean(f"Warning: {what}"), "Continue? [y/N] ", sep="\n", end="", file=sys.stderr, flush=True)
    if (await read_answer()).strip().lower() not in ("y", "yes"):
        raise Failed("error: nothing was changed")


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


async def read_answer() -> str:
    """Return a line from the terminal. Ctrl-C ends the wait."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, there.set)
    try:
        await there.wait()
    finally:
        with suppress(OSError, ValueError):
            loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
