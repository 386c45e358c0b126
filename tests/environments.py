"""Python environments for tools whose packages conflict with the packages of the project. They stay in the cache."""

import hashlib
import subprocess
import sys
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.provide import is_program, provide

INSTALLED_WITHIN_S = 900
PYTHON = "bin/python"


class EnvironmentMissing(Exception):
    """An environment is missing and cannot be installed. `str()` says why."""


def find(name: str, lock: Path) -> Path | None:
    """Return the Python of the environment with the packages of a lock file, or None if it is not installed."""
    python = _home(name, lock) / PYTHON
    return python if is_program(python) else None


def find_or_install(name: str, lock: Path) -> Path:
    """Return the Python of the environment, installed if necessary. Raises EnvironmentMissing."""
    return provide(_home(name, lock), lambda home: _install(name, lock, home), program=PYTHON)


def _home(name: str, lock: Path) -> Path:
    """The environment's folder. Its name depends on the packages and on the version of Python."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_directory() / "tools" / f"{name}-py{python}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:8]}"


def _install(name: str, lock: Path, home: Path) -> None:
    print(f"installing {name}", file=sys.stderr, flush=True)
    # `home` is moved later. Only its Python is run, because the environment's scripts contain the path.
    _run(name, sys.executable, "-m", "venv", str(home))
    pip = (str(home / PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(name, *pip, "--only-binary", ":all:", "--require-hashes", "--requirement", str(lock))


def _run(name: str, *command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentMissing(f"{name} cannot be installed: {error}") from error
    if done.returncode:
        raise EnvironmentMissing(f"{name} cannot be installed: {done.stderr.strip()[-1000:]}")
