"""Tries the files of a release as a user does: installs the wheel, and runs the plugin with each Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PIN = re.compile(r"^([\w.-]+)(?:\[\S+\])?(==[^\s\\]+)", re.MULTILINE)


def constraints(lock: Path) -> str:
    """Return the pins of a lock file as a constraints file of pip, which allows no extras."""
    return "".join(f"{name}{version}\n" for name, version in PIN.findall(lock.read_text()))


def installed(wheel: Path, lock: Path, scratch: Path) -> Path:
    """Return the Python of a new virtual environment with the wheel and the pinned versions of its dependencies."""
    limits, environment = scratch / "constraints.txt", scratch / "environment"
    limits.write_text(constraints(lock))
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    # Python compiles a module at its first import. Most modules are never imported here.
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-compile", "--disable-pip-version-check")
    run(sys.executable, *install, "--constraint", limits, wheel)
    return python


def pythons(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return each of these versions of Python that starts, with its path."""
    found = [(name, path) for name in names if (path := shutil.which(f"python{name}"))]
    return [(name, path) for name, path in found if subprocess.run([path, "-c", ""], check=False).returncode == 0]


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
