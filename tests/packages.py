"""Debian's packages for tests. Only root can install a package or update the list of packages."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.provide import locked
from tests.cluster import skip_or_fail


def program_or_skip(program: str, package: str) -> Path:
    """The path of a program on the PATH, from this package. Otherwise, skip the test. In CI, fail the test."""
    need(package, lambda: shutil.which(program) is not None)
    return Path(shutil.which(program) or "")


def need(package: str, is_there: Callable[[], bool]) -> None:
    """Install the package if what it contains is not there. If it cannot be installed, skip the test. In CI, fail."""
    why = "" if is_there() else _install(package)
    if not is_there():
        skip_or_fail(f"Debian's package {package} is not installed: {why}")


@cache
def _install(package: str) -> str:
    """Install the package, one process at a time. Return the reason if that fails."""
    if os.geteuid() or not shutil.which("apt-get"):
        return "only root can install it, with apt-get"
    cache_directory().mkdir(parents=True, exist_ok=True)
    try:
        with locked(cache_directory() / ".packages.lock", "installs packages"):
            apt_get("install", "--yes", "--no-install-recommends", package)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{error}: {getattr(error, 'stderr', '')}"
    return ""


def apt_get(*arguments: str, cwd: Path | None = None) -> None:
    """Run apt-get. If it fails, root updates the list of packages, which a new machine does not have, and tries again.

    Raises OSError or subprocess.SubprocessError.
    """
    try:
        _run(*arguments, cwd=cwd)
    except subprocess.CalledProcessError:
        if os.geteuid():
            raise
        _run("update")
        _run(*arguments, cwd=cwd)


def _run(*arguments: str, cwd: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "--quiet", "--quiet", *arguments]
    subprocess.run(command, cwd=cwd, env=environment, check=True, timeout=90, capture_output=True, text=True)
