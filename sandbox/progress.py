"""This module shows the progress of a long task on stderr.

If stderr is a terminal, the module shows a progress bar. Otherwise the module prints at most one line every 20 seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 20.0
"""The minimum number of seconds between two progress lines if stderr is not a terminal."""


def print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def progress_display(title: str, *, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Show progress while the block runs.

    Yield a function that the block calls with the number of completed units. `total` is the number of all units, or 0
    if the number is not known.
    """
    print_line(title)
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
    started = last_printed = time.monotonic()

    def advance(done: int) -> None:
        nonlocal last_printed
        now = time.monotonic()
        if now - last_printed >= EVERY_S:
            last_printed = now
            of_total = f" of {total}" if total else ""
            print_line(f"  {done}{of_total} {unit}, {now - started:.0f} s")

    return advance
