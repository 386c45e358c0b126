"""Finds or fetches the programs of Prometheus: the server, and `promtool`, which checks metrics pages and rules.

The PATH and the cache are searched first. If both lack a program, Debian's package is downloaded and unpacked into the
cache. Nothing is installed. Only root can get the list of packages that a new machine lacks.
"""

import shutil
import subprocess
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.provide import provide
from tests.cluster import skip_or_fail
from tests.packages import apt_get


def find_or_skip(program: str = "promtool") -> Path:
    """The path of the program, downloaded if necessary. If the download fails, skip the test. In CI, fail the test."""
    if on_path := shutil.which(program):
        return Path(on_path)
    try:
        return provide(cache_directory() / program, _fetch)
    except (OSError, subprocess.SubprocessError) as error:
        skip_or_fail(f"{program} is neither on the PATH nor in the cache, and could not be downloaded: {error}")


def _fetch(target: Path) -> None:
    scratch = target.parent
    apt_get("download", "prometheus", cwd=scratch)
    [package] = scratch.glob("prometheus_*.deb")
    unpack = ["dpkg", "-x", package.name, "unpacked"]
    subprocess.run(unpack, cwd=scratch, check=True, timeout=90, capture_output=True)
    (scratch / "unpacked/usr/bin" / target.name).replace(target)
