"""Python environments for tools whose packages conflict with the packages of the project. They stay in the cache."""

import hashlib
import subprocess
import sys
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.provide import provide
from tests.cluster import skip_or_fail

PYTHON = "bin/python"


def python_or_skip(name: str) -> Path:
    """Return the Python of the environment with the packages of `requirements-NAME.txt`, installed if necessary. If
    they cannot be installed, skip the test. In CI, fail the test.
    """
    lock = Path(__file__).resolve().parent.parent / ".ci" / f"requirements-{name}.txt"
    # The folder's name depends on the packages and on the version of Python.
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    home = cache_directory() / "tools" / f"{name}-py{python}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:8]}"
    try:
        return provide(home, lambda scratch: _install(lock, scratch), program=PYTHON)
    except (OSError, subprocess.SubprocessError) as error:
        skip_or_fail(f"{name} cannot be installed: {error} {str(getattr(error, 'stderr', '')).strip()[-1000:]}")


def _install(lock: Path, home: Path) -> None:
    print(f"installing the packages of {lock.name}", file=sys.stderr, flush=True)
    # `home` is moved later. Only its Python is run, because the environment's scripts contain the path.
    pip = (str(home / PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    packages = ("--only-binary", ":all:", "--require-hashes", "--requirement", str(lock))
    for command in ((sys.executable, "-m", "venv", str(home)), (*pip, *packages)):
        subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
