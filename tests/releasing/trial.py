"""Tries the files of a release as a user does: installs the wheel, and runs the plugin with each Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

PIN = re.compile(r"^([\w.-]+)(?:\[\S+\])?(==[^\s\\]+)", re.MULTILINE)


def installed(wheel: Path, lock: Path, scratch: Path) -> Path:
    """Return the Python of a new virtual environment with the wheel and the pinned versions of its dependencies.

    A constraints file of pip allows no extras.
    """
    limits, environment = scratch / "constraints.txt", scratch / "environment"
    limits.write_text("".join(f"{name}{version}\n" for name, version in PIN.findall(lock.read_text())))
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    # Python compiles a module at its first import. Most modules are never imported here.
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-compile", "--disable-pip-version-check")
    run(sys.executable, *install, "--constraint", limits, wheel)
    return python


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
