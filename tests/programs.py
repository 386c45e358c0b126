"""Runs a program to its end, and lists processes."""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def finished(
    command: Sequence[str | Path], *, within_s: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Return the exit code and the output as text. `options` are those of `subprocess.run`."""
    return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False, **options)


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
