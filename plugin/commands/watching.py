"""`--watch` of `list` and `tree`: a live table on a terminal, and elsewhere one line for each change."""

from asyncio import sleep
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, TypeAlias

import click

from plugin import clock, printing
from plugin.flags import WIDE, Flags
from plugin.printing import coloured_table, note, print_lines

INTERVAL_S: Final = 1.0
Table: TypeAlias = Callable[[datetime], list[str]]
"""A function that returns the lines of a table. The time is the present for the ages in it."""


def check_watch(flags: Flags, *, watch: bool) -> None:
    """Raise click.UsageError if a user watches in a form that is one document."""
    if watch and flags.output not in ("", WIDE):
        raise click.UsageError(f"--watch shows a table: leave out -o {flags.output}, or use rollout status -o")


async def watch(look: Callable[[], Awaitable[Table]]) -> None:
    """Look again and again, until a look fails or the user ends the command. Raise what `look` raises."""
    if printing.is_terminal():
        try:
            await _live(look)
        except ImportError:
            note("Note: for a live table, install rich: pip install 'vmherd[cli]'")
    started, known = clock.now(), set[str]()
    while True:
        table = await look()
        # Compared at the same time and without the padding, only a real change is new.
        shown = [" ".join(line.split()) for line in table(started)]
        print_lines(line for line, same in zip(table(clock.now()), shown, strict=True) if same not in known)
        known = set(shown)
        await sleep(INTERVAL_S)


async def _live(look: Callable[[], Awaitable[Table]]) -> None:
    from rich.console import Console  # noqa: PLC0415  only a terminal needs it
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Live(console=Console(highlight=False, force_terminal=True), auto_refresh=False) as area:
        while True:
            lines = coloured_table((await look())(clock.now()))
            area.update(Text.from_ansi("\n".join(lines)), refresh=True)
            await sleep(INTERVAL_S)
