"""The loop of `list -w`, `tree -w` and `rollout status`: a live picture on a terminal, and elsewhere one line for each
change.

While the server does not answer, the last picture stays, and a line says since when there is no answer.
"""

import asyncio
from asyncio import sleep
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias, TypeVar

import click

from informers.errors import ApiError, is_transient
from plugin import clock, printing
from plugin.flags import WIDE, Flags
from plugin.printing import coloured_table, note, print_lines
from plugin.views.tables import short

INTERVAL_S: Final = 1.0
SILENT_S: Final = 5.0
"""A look that takes longer counts as no answer."""

T = TypeVar("T")
Table: TypeAlias = Callable[[datetime], list[str]]
"""A function that returns the lines of a picture. The time is the present for the ages in it."""


def check_watch(flags: Flags, *, watch: bool) -> None:
    """Raise click.UsageError if a user watches in a form that is one document."""
    if watch and flags.output not in ("", WIDE):
        raise click.UsageError(f"--watch shows a table: leave out -o {flags.output}, or use rollout status -o")


class Screen:
    """Shows one picture after the other. With `vanishes`, the last picture on a terminal is removed at the end."""

    def __init__(self, stack: ExitStack, *, vanishes: bool = False) -> None:
        self._started, self._known, self._is_silent = clock.now(), set[str](), False
        self.is_live = False
        if not printing.is_terminal():
            return
        try:
            from rich.console import Console  # noqa: PLC0415  only a terminal needs it
            from rich.live import Live  # noqa: PLC0415
        except ImportError:
            note("Note: for a live picture, install rich: pip install 'vmherd[cli]'")
            return
        console, self.is_live = Console(highlight=False, force_terminal=True), True
        self._area = stack.enter_context(Live(console=console, auto_refresh=False, transient=vanishes))

    def show(self, table: Table, silence: str = "") -> None:
        """`silence` says since when the server does not answer, or is ""."""
        if self.is_live:
            from rich.text import Text  # noqa: PLC0415

            lines = [*coloured_table(table(clock.now())), *([silence] if silence else [])]
            self._area.update(Text.from_ansi("\n".join(lines)), refresh=True)
            return
        # Compared at the same time and without the padding, only a real change is new.
        shown = [" ".join(line.split()) for line in table(self._started)]
        print_lines(line for line, same in zip(table(clock.now()), shown, strict=True) if same not in self._known)
        self._known = set(shown)
        if silence and not self._is_silent:
            note(f"Warning: {silence}")
        self._is_silent = bool(silence)


async def watch(look: Callable[[], Awaitable[Table]]) -> None:
    """Show a table until a look fails or the user ends the command. Raise what `look` raises."""
    with ExitStack() as stack:
        await follow(look, Screen(stack).show, is_last=lambda _: False)


async def follow(
    look: Callable[[], Awaitable[T]], show: Callable[[T, str], None], *, is_last: Callable[[T], bool]
) -> T:
    """Look again and again, and show each result, until the last one. Return it.

    Raise what the first look raises. Later, a failure that may end by itself does not end the loop.
    """
    found = await look()
    while True:
        show(found, "")
        if is_last(found):
            return found
        await sleep(INTERVAL_S)
        found = await _answer(look, partial(show, found))


async def _answer(look: Callable[[], Awaitable[T]], show: Callable[[str], None]) -> T:
    """Look until the server answers. While it does not, show since when, and the last failure."""
    loop, failures = asyncio.get_running_loop(), list[ApiError]()
    started = loop.time()

    def tick() -> None:
        silent, why = loop.time() - started, f": {failures[-1]}" if failures else ""
        if failures or silent >= SILENT_S:
            show(f"no answer since {short(silent)}{why}")
        timers[0] = loop.call_later(INTERVAL_S, tick)

    timers = [loop.call_later(INTERVAL_S, tick)]
    try:
        while True:
            try:
                return await look()
            except ApiError as error:
                if not is_transient(error):
                    raise
                failures.append(error)
            await asyncio.sleep(INTERVAL_S)
    finally:
        timers[0].cancel()
