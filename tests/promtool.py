"""Finds or fetches the programs of Prometheus: the server, and `promtool`, which checks metrics pages and rules.

The PATH and the cache are searched first. If both lack a program, Debian's package is downloaded and unpacked into the
cache. Nothing is installed. Only root can get the list of packages that a new machine lacks. `python -m tests.promtool`
finds or fetches the programs from the command line.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.provide import is_program, provide
from tests.cluster import skip_or_fail
from tests.packages import apt_get

UNPACKED_WITHIN_S = 90


def find(program: str = "promtool") -> Path | None:
    """The path of the program on this machine, or None."""
    on_path = shutil.which(program)
    if on_path:
        return Path(on_path)
    return _cached(program) if is_program(_cached(program)) else None


def find_or_fetch(program: str = "promtool") -> Path | None:
    """The path of the program, downloaded if necessary. None if the download fails."""
    found = find(program)
    if found or not (shutil.which("apt-get") and shutil.which("dpkg")):
        return found
    try:
        provide(_cached(program), _fetch)
    except (OSError, subprocess.SubprocessError):
        return None
    return find(program)


def find_or_skip(program: str = "promtool") -> Path:
    """The path of the program, downloaded if necessary. If the download fails, skip the test. In CI, fail the test."""
    found = find_or_fetch(program)
    if found is None:
        skip_or_fail(f"{program} is neither on the PATH nor in the cache, and could not be downloaded")
    return found


def _cached(program: str) -> Path:
    return cache_directory() / program


def _fetch(target: Path) -> None:
    scratch = target.parent
    apt_get("download", "prometheus", cwd=scratch)
    [package] = scratch.glob("prometheus_*.deb")
    unpack = ["dpkg", "-x", package.name, "unpacked"]
    subprocess.run(unpack, cwd=scratch, check=True, timeout=UNPACKED_WITHIN_S, capture_output=True)
    (scratch / "unpacked/usr/bin" / target.name).replace(target)


if __name__ == "__main__":
    missing = False
    for name in ("promtool", "prometheus"):
        place = find_or_fetch(name)
        missing = missing or place is None
        print(place or f"{name}: not found, and Debian's package could not be downloaded")
    sys.exit(missing)
