"""How far something long is: a bar on a terminal, a line now and then where there is none. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 20.0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def shown(title: str, *, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Show progress while the block runs; it is given a function to call with how much is done."""
    say(title)
    if sys.stderr.isatty():
        with _bar(total=total, unit=unit) as advance:
            yield advance
    else:
        yield _lines(total=total, unit=unit)


@contextmanager
def _bar(*, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console  # noqa: PLC0415  slow to import, and seldom needed
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total or None)
        yield lambda done: bar.update(task, completed=done)


def _lines(*, total: int, unit: str) -> Callable[[int], None]:
    begun = said = time.monotonic()

    def advance(done: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= EVERY_S:
            said = now
            of_total = f" of {total}" if total else ""
            say(f"  {done}{of_total} {unit}, {now - begun:.0f} s")

    return advance
