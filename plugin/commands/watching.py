"""The loop of all views that live on: `list -w`, `tree -w`, `rollout status` and the page.

While the server does not answer, the last picture stays, and a line says since when there is no answer. A terminal
shows a live picture. Elsewhere, one line is printed for each change.
"""

import asyncio
from asyncio import sleep
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar

import click

from controller.running import leaf_errors, running
from informers.errors import ApiError, is_transient
from plugin import clock, printing
from plugin.flags import WIDE, Flags
from plugin.printing import clean, coloured_table, note, print_lines
from plugin.views.tables import short

INTERVAL_S: Final = 1.0
SILENT_S: Final = 5.0
"""A look that takes longer counts as no answer."""

T = TypeVar("T")


class Picture(NamedTuple):
    """`lines` returns the lines at a time, which is the present for the ages in them. `warning` comes first, or is "".

    The words of a warning before " since " do not change. `names` are the objects in the picture, also those without a
    line.
    """

    lines: Callable[[datetime], list[str]]
    warning: str = ""
    names: frozenset[str] = frozenset()


def check_watch(flags: Flags, *, watch: bool) -> None:
    """Raise click.UsageError if a user watches in a form that is one document."""
    if watch and flags.output not in ("", WIDE):
        raise click.UsageError(f"--watch shows a table: leave out -o {flags.output}, or use rollout status -o")


class Screen:
    """Shows one picture after the other. With `vanishes`, the last picture on a terminal is removed at the end."""

    def __init__(self, stack: ExitStack, *, vanishes: bool = False) -> None:
        self._started, self._warned = clock.now(), list[str]()
        self._known, self._names = set[str](), frozenset[str]()
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

    async def show(self, picture: Picture, silence: str = "") -> None:
        """`silence` says since when the server does not answer, or is ""."""
        warnings = list(filter(None, (silence, picture.warning)))
        if self.is_live:
            from rich.text import Text  # noqa: PLC0415

            lines = [*(f"Warning: {clean(each)}" for each in warnings), *coloured_table(picture.lines(clock.now()))]
            self._area.update(Text.from_ansi("\n".join(lines)), refresh=True)
            return
        subjects = [each.partition(" since ")[0] for each in warnings]
        for each, subject in zip(warnings, subjects, strict=True):
            if subject not in self._warned:
                note(f"Warning: {each}")
        self._warned = subjects
        # Compared at the same time and without padding and branches, only a real change is new.
        shown = [" ".join(line.replace("`- ", "|- ", 1).split()) for line in picture.lines(self._started)]
        new = zip(picture.lines(clock.now()), shown, strict=True)
        print_lines(line for line, same in new if same not in self._known)
        print_lines(f"{each} is gone" for each in sorted(self._names - picture.names))
        self._known, self._names = set(shown), picture.names


async def watch(found: Picture, look: Callable[[], Awaitable[Picture]]) -> None:
    """Show a table, until a look fails or the user ends the command. Raise what `look` raises."""
    with ExitStack() as stack:
        await follow(found, look, Screen(stack).show)


async def pause() -> None:
    await sleep(INTERVAL_S)


async def follow(
    found: T,
    look: Callable[[], Awaitable[T]],
    show: Callable[[T, str], Awaitable[None]],
    *,
    is_last: Callable[[T], bool] = lambda _: False,
    pause: Callable[[], Awaitable[None]] = pause,
) -> T:
    """Show what is found, and look again after each pause. Return the last find. Raise what `look` raises.

    While the server does not answer, each second shows the last find and since when. A failure that may end by itself
    counts as no answer.
    """
    while True:
        await show(found, "")
        if is_last(found):
            return found
        await pause()
        found = await _answer(look, partial(show, found))


async def _answer(look: Callable[[], Awaitable[T]], show: Callable[[str], Awaitable[None]]) -> T:
    loop, failure = asyncio.get_running_loop(), ""
    started = loop.time()

    async def tell() -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            if failure or loop.time() - started >= SILENT_S:
                await show(f"no answer since {short(loop.time() - started)}{failure}")

    try:
        async with running(tell()):
            while True:
                try:
                    return await look()
                except ApiError as error:
                    if not is_transient(error):
                        raise
                    failure = f": {error}"
                await asyncio.sleep(INTERVAL_S)
    except ExceptionGroup as errors:
        raise leaf_errors(errors)[0] from errors
