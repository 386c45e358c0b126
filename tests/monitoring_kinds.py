"""Finds the definitions of the Prometheus operator's kinds in the operator's Go module.

`tools/monitoring` pins the module and its checksum. Go downloads the module into its own cache the first time. Nothing
is compiled. `python -m tests.monitoring_kinds` finds or downloads the definitions and prints their folder.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from sandbox.gobuild import BuildError, find_go

PIN = Path(__file__).resolve().parent.parent / "tools" / "monitoring"
MODULE = "github.com/prometheus-operator/prometheus-operator"
KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
FETCHED_WITHIN_S = 90


class KindsMissing(Exception):
    """The definitions are missing and cannot be downloaded. `str()` says why."""


def find_definitions() -> dict[str, Path]:
    """The file with the definition of each kind, downloaded if necessary. Raises KindsMissing."""
    folder = _module() / "example" / "prometheus-operator-crd"
    files = {kind: folder / f"monitoring.coreos.com_{kind.lower()}s.yaml" for kind in KINDS}
    if missing := [kind for kind, path in files.items() if not path.is_file()]:
        raise KindsMissing(f"{MODULE} {pinned()} has no definition of {', '.join(missing)}")
    return files


def pinned() -> str:
    """The pinned version of the operator, such as "v0.85.0"."""
    found = re.search(rf"{re.escape(MODULE)} (v\S+)", (PIN / "go.mod").read_text())
    if found is None:
        raise KindsMissing(f"{PIN / 'go.mod'} pins no {MODULE}")
    return found[1]


def _module() -> Path:
    """The module's folder in Go's cache."""
    why = f"the kinds of the Prometheus operator {pinned()} cannot be had"
    try:
        done = subprocess.run(
            [find_go(), "mod", "download", "-json", f"{MODULE}@{pinned()}"],
            cwd=PIN,
            env={**os.environ, "GOWORK": "off"},
            capture_output=True,
            text=True,
            timeout=FETCHED_WITHIN_S,
            check=False,
        )
    except (BuildError, subprocess.TimeoutExpired) as error:
        raise KindsMissing(f"{why}: {error}") from error
    told = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in told:
        raise KindsMissing(f"{why}: {told.get('Error') or done.stderr.strip()[-2000:]}")
    return Path(told["Dir"])


if __name__ == "__main__":
    try:
        print(*find_definitions().values(), sep="\n")
    except KindsMissing as problem:
        sys.exit(str(problem))
