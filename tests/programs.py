"""Runs a program to its end."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def finished(
    command: Sequence[str | Path], *, within_s: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Return the exit code and the output as text. `options` are those of `subprocess.run`."""
    return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False, **options)
