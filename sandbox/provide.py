"""Makes the programs in a cache that several processes share, and shows the progress of a long task."""

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def progress_display(title: str, *, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows the number of completed units out of `total` (0 if unknown) on a terminal."""
    print_line(title)
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  slow to import, and seldom needed
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total or None)
        yield lambda done: bar.update(task, completed=done)


def is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def provide(item: Path, make: Callable[[Path], None], *, program: str = "") -> Path:
    """Return the path of a program. If it is missing, one process at a time lets `make` write it.

    The item is the program, or a folder that contains `program`. An error leaves nothing in the cache.
    """
    found = item / program
    if is_program(found):
        return found
    item.parent.mkdir(parents=True, exist_ok=True)
    with locked(item.with_name(f".{item.name}.lock"), f"makes {item.name}"):
        if not is_program(found):  # another process may have made the program while this process waited for the lock
            _make(item, make)
    return found


def _make(item: Path, make: Callable[[Path], None]) -> None:
    """Let `make` write a file or a folder beside the item, and move it there. A file is made executable."""
    scratch = item.with_name(f".incomplete-{item.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        made = scratch / item.name
        make(made)
        if item.is_dir():
            shutil.rmtree(item)  # a folder without its program
        if made.is_file():
            made.chmod(0o755)
        made.replace(item)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def locked(lock: Path, does: str) -> Iterator[None]:
    """Hold the lock while the block runs. If another process holds it, print what that process `does`, and wait."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_line(f"waiting for another process that {does}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
