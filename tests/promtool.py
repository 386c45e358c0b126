"""Finds or fetches the programs of Prometheus: the server, and `promtool`, which checks metrics pages and rules.

The PATH and the cache are searched first. If both lack a program, Debian's package is downloaded and unpacked into the
cache. This needs no root, and nothing is installed. `python -m tests.promtool` finds or fetches the programs from the
command line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cluster import skip_or_fail

CACHE = Path("~/.cache/vmherd").expanduser()
DOWNLOAD_TIMEOUT_S = 90


def find(program: str = "promtool") -> Path | None:
    """The path of the program on this machine, or None."""
    on_path = shutil.which(program)
    if on_path:
        return Path(on_path)
    cached = CACHE / program
    return cached if os.access(cached, os.X_OK) else None


def find_or_fetch(program: str = "promtool") -> Path | None:
    """The path of the program, downloaded if necessary. None if the download fails."""
    found = find(program)
    if found or not (shutil.which("apt-get") and shutil.which("dpkg")):
        return found
    try:
        _fetch(program)
    except (OSError, subprocess.SubprocessError):
        return None
    return find(program)


def find_or_skip(program: str = "promtool") -> Path:
    """The path of the program, downloaded if necessary. If the download fails, skip the test. In CI, fail the test."""
    found = find_or_fetch(program)
    if found is None:
        skip_or_fail(f"{program} is neither on the PATH nor in the cache, and could not be downloaded")
    return found


def _fetch(program: str) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        _run("apt-get", "download", "prometheus", cwd=directory)
        [package] = Path(directory).glob("prometheus_*.deb")
        _run("dpkg", "-x", package.name, "unpacked", cwd=directory)
        # The atomic move comes last: an interrupted download leaves no incomplete program.
        (Path(directory) / "unpacked/usr/bin" / program).replace(CACHE / program)


def _run(*command: str, cwd: str) -> None:
    subprocess.run(command, cwd=cwd, check=True, timeout=DOWNLOAD_TIMEOUT_S, capture_output=True)


if __name__ == "__main__":
    missing = False
    for name in ("promtool", "prometheus"):
        place = find_or_fetch(name)
        missing = missing or place is None
        print(place or f"{name}: not found, and Debian's package could not be downloaded")
    sys.exit(missing)
