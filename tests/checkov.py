"""Finds checkov, a linter for Kubernetes manifests, or installs it in a separate environment in the cache.

`.ci/requirements-checkov.txt` pins the packages of checkov. They conflict with the packages of the project. A checkov
on the PATH is not used, because another version has other checks. `python -m tests.checkov` installs checkov. The first
installation takes one to three minutes and 300 MB.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from tests import environments
from tests.environments import EnvironmentMissing

REQUIREMENTS = Path(__file__).resolve().parent.parent / ".ci" / "requirements-checkov.txt"
TIMEOUT_S = 90


class CheckovMissing(Exception):
    """checkov is missing and cannot be installed. `str()` says why."""


class Finding(Struct, frozen=True, order=True):
    """A failed check, and the object that failed it."""

    check: str
    kind: str
    name: str
    says: str

    def __str__(self) -> str:
        return f"{self.check} ({self.says}): {self.kind} {self.name}"


def find() -> Path:
    """The Python of the environment with checkov. Raises CheckovMissing if it is not installed."""
    if python := environments.find(_name(), REQUIREMENTS):
        return python
    raise CheckovMissing("no checkov in the cache: `python -m tests.checkov` installs it")


def find_or_install() -> Path:
    """The Python of the environment with checkov, installed if necessary. Raises CheckovMissing."""
    try:
        return environments.find_or_install(_name(), REQUIREMENTS)
    except EnvironmentMissing as error:
        raise CheckovMissing(str(error)) from error


class Checkov:
    """checkov in one process, which imports checkov once. The import is most of the time of a run."""

    def __init__(self, home: Path) -> None:
        command = [str(find()), "-P", str(Path(__file__).with_name("checkov_server.py"))]
        self._process = subprocess.Popen(
            command, env=_environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def findings(self, manifests: Iterable[dict[str, Any]], directory: Path) -> list[Finding]:
        """Check these objects with checkov. The objects belong to one cluster."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"cwd": str(directory), "arguments": _arguments(manifests, directory)}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the process of checkov has ended"
        return _findings(int(answer), *((directory / name).read_text() for name in ("stdout", "stderr")))

    def close(self) -> None:
        self._process.communicate(timeout=TIMEOUT_S)


def _arguments(manifests: Iterable[dict[str, Any]], directory: Path) -> list[str]:
    file = directory / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    which = ["--framework", "kubernetes", "--file", str(file)]
    return [*which, "--skip-download", "--quiet", "--compact", "--output", "json"]


def _environment(home: Path) -> dict[str, str]:
    """The variables of checkov. They disable its check for a newer version, which needs the internet."""
    quiet = {"LOG_LEVEL": "ERROR", "CKV_SKIP_PACKAGE_UPDATE_CHECK": "1"}
    return {"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home), **quiet}


def _findings(code: int, output: str, errors: str) -> list[Finding]:
    if code not in (0, 1) or errors:
        raise AssertionError(f"checkov ended with {code}\n{output[-2000:]}{errors[-2000:]}")
    report = json.loads(output)
    assert not report["summary"]["parsing_errors"], report
    assert report["summary"]["passed"], "it has looked at something"
    return sorted(map(_read, report["results"]["failed_checks"]))


def _read(failed: dict[str, Any]) -> Finding:
    kind, _, rest = failed["resource"].partition(".")
    return Finding(failed["check_id"], kind, rest.rpartition(".")[2], failed["check_name"])


def _name() -> str:
    version = re.search(rb"^checkov==(\S+)", REQUIREMENTS.read_bytes(), re.MULTILINE)
    assert version is not None, f"{REQUIREMENTS} pins no checkov"
    return f"checkov-{version[1].decode()}"


if __name__ == "__main__":
    try:
        print(find_or_install())
    except CheckovMissing as error:
        sys.exit(str(error))
