"""Runs the tools of a release."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

WITHIN_S = 900


class Failed(Exception):
    """A tool failed. `str()` has its last lines."""


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a command and return its output. Raises Failed."""
    words = [str(word) for word in command]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    try:
        done = subprocess.run(
            words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{words[0]}: {error}") from error
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise Failed(f"{' '.join(words[:4])} ...: exit {done.returncode}\n{last}")
    return done.stdout
