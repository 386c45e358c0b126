"""Finds `promtool`, or fetches it: Prometheus' own word on whether a metrics page is well-formed and well-named.

It is looked for on the PATH and in the cache. Where it is in neither, Debian's package is downloaded and unpacked into
the cache, which takes no root and installs nothing. `python -m tests.promtool` does just that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHED = Path("~/.cache/vmherd/promtool").expanduser()
DOWNLOAD_TIMEOUT_S = 90


def find() -> Path | None:
    """The promtool of this machine, if it has one."""
    on_path = shutil.which("promtool")
    if on_path:
        return Path(on_path)
    return CACHED if os.access(CACHED, os.X_OK) else None


def find_or_fetch() -> Path | None:
    """The promtool of this machine, fetched if need be; None where that does not work."""
    found = find()
    if found or not (shutil.which("apt-get") and shutil.which("dpkg")):
        return found
    try:
        _fetch()
    except (OSError, subprocess.SubprocessError):
        return None
    return find()


def _fetch() -> None:
    CACHED.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHED.parent) as directory:
        _run("apt-get", "download", "prometheus", cwd=directory)
        [package] = Path(directory).glob("prometheus_*.deb")
        _run("dpkg", "-x", package.name, "unpacked", cwd=directory)
        # The move comes last and is atomic: a download that breaks off leaves nothing behind.
        (Path(directory) / "unpacked/usr/bin/promtool").replace(CACHED)


def _run(*command: str, cwd: str) -> None:
    subprocess.run(command, cwd=cwd, check=True, timeout=DOWNLOAD_TIMEOUT_S, capture_output=True)


if __name__ == "__main__":
    promtool = find_or_fetch()
    print(promtool or "promtool: not found, and Debian's package could not be downloaded")
    sys.exit(promtool is None)
