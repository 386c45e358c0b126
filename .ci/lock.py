"""Pin what pyproject.toml asks for, with hashes: `make lock`.

Writes `.ci/requirements-run.txt` (what the image installs), `.ci/requirements-build.txt` (what builds it),
`.ci/requirements-dev.txt` (both, the sandbox, and the tools of tests and lint) and `.ci/requirements-checkov.txt` (one
such tool that has an environment of its own). None of them names an index: whoever installs from them uses the one
their pip is set up with, and the hashes see to it that the packages are the same.

Run it with the oldest Python that the project supports, so that backports which only that one needs are pinned too.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = Path("build")
HEADER = "# Pinned from pyproject.toml by `make lock`, which regenerates this file: change pyproject.toml, not this.\n"
OPTIONS = ("--generate-hashes", "--allow-unsafe", "--strip-extras", "--no-header", "--quiet", "--no-config")
NO_ADDRESSES = ("--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host")


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]
    wanted = project["project"]["dependencies"] + optional["uvloop"] + optional["secure"]
    lock("run", wanted)
    lock("build", project["build-system"]["requires"])
    lock(
        "dev",
        wanted + optional["sandbox"] + project["dependency-groups"]["dev"] + project["build-system"]["requires"],
    )
    lock("checkov", project["dependency-groups"]["checkov"])
    return 0


def lock(name: str, wanted: list[str]) -> None:
    (ROOT / SCRATCH).mkdir(exist_ok=True)
    source, target = SCRATCH / f"{name}.in", Path(".ci") / f"requirements-{name}.txt"
    (ROOT / source).write_text("".join(f"{requirement}\n" for requirement in wanted))
    command = [sys.executable, "-m", "piptools", "compile", *OPTIONS, *NO_ADDRESSES, "--output-file", target, source]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    pins = (ROOT / target).read_text().replace(f"-r {source}", "vmherd")
    (ROOT / target).write_text(HEADER + pins)


if __name__ == "__main__":
    sys.exit(main())
