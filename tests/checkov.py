"""Finds checkov, a linter for Kubernetes manifests, or installs it in a separate environment in the cache.

`.ci/requirements-checkov.txt` pins the packages of checkov. They conflict with the packages of the project. A checkov
on the PATH is not used, because another version has other checks. `python -m tests.checkov` installs checkov. The first
installation takes one to three minutes and 300 MB.
"""

from __future__ import annotations

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


def findings(manifests: Iterable[dict[str, Any]], directory: Path, *, proxy: str = "") -> list[Finding]:
    """Check these objects with checkov. The objects belong to one cluster. If checkov sends HTTP requests, they go to
    `proxy`.
    """
    file = directory / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    command = [str(find()), "-m", "checkov.main", "--framework", "kubernetes", "--file", str(file)]
    command += ["--skip-download", "--quiet", "--compact", "--output", "json"]
    # Disable the check for a newer version, which needs the internet.
    quiet = {
        "HOME": str(directory),
        "TMPDIR": str(directory),
        "LOG_LEVEL": "ERROR",
        "CKV_SKIP_PACKAGE_UPDATE_CHECK": "1",
    }
    proxies = {name: proxy for name in ("http_proxy", "https_proxy") if proxy}
    done = subprocess.run(
        command,
        cwd=directory,
        env={"PATH": os.defpath, **quiet, **proxies},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode not in (0, 1) or done.stderr:
        raise AssertionError(f"checkov ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    report = json.loads(done.stdout)
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
