"""Tries the files of a release: a new virtual environment runs the demo, and each Python runs the zipapp."""

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tools.release.project import Failed, run
from tools.release.zipapp import NAME, PYTHONS

PIN = re.compile(r"^([\w.-]+)(?:\[\S+\])?(==[^\s\\]+)", re.MULTILINE)


def constraints(lock: str) -> str:
    """Return the pins of a lock file as a constraints file of pip, which allows no extras."""
    return "".join(f"{name}{version}\n" for name, version in PIN.findall(lock))


def wheel(path: Path, lock: str, scratch: Path) -> None:
    """Install the wheel into a new virtual environment with the pinned versions, and run `vmherd demo --once`."""
    limits = scratch / "constraints.txt"
    limits.write_text(constraints(lock))
    environment = scratch / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    # Python compiles a module at its first import. Most modules are never imported here.
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    run(sys.executable, *install, "--constraint", limits, f"{path}[sandbox,cli]")
    programs = ("vmherd", "kubectl-vmherd")
    for program in programs:
        run(python.with_name(program), "--version", cwd=scratch)
    run(python.with_name("vmherd"), "demo", "--once", cwd=scratch)


def zipapp(path: Path, version: str, scratch: Path) -> list[str]:
    """Run the zipapp with each supported Python on this machine. Return the versions of Python."""
    tried = []
    for name, python in sorted(_pythons()):
        home = scratch / f"cache-{name}"
        for _ in range(2):
            printed = run(python, path, "version", XDG_CACHE_HOME=str(home), PYTHONPATH="")
            if not printed.startswith(f"vmherd {version} (Python {name}."):
                raise AssertionError(f"{NAME} with Python {name} printed {printed!r}")
        tried.append(name)
    return tried


def _pythons() -> Iterator[tuple[str, str]]:
    """Yield each supported Python that starts. A name on the PATH may belong to a version that is not installed."""
    for name in PYTHONS:
        found = shutil.which(f"python{name}")
        with suppress(Failed):
            if found:
                run(found, "-c", "")
                yield name, found
