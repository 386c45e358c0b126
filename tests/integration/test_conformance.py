"""`vmherd conformance` as a user types it: on a cluster without a controller, and interrupted.

`tests/conformance/test_cases_cluster.py` runs all cases with a controller.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.admin import Admin
from sandbox.controlplane import ControlPlane
from tests.cluster import BARE_ENVIRONMENT
from tests.programs import finished

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = "/api/v1/namespaces?labelSelector=vmherd.dev/conformance"


def vmherd(*arguments: str) -> subprocess.CompletedProcess[str]:
    return finished([sys.executable, "-m", "controller", *arguments], cwd=ROOT, env=BARE_ENVIRONMENT, within_s=200)


def test_without_a_controller_the_cases_fail_and_leave_nothing(idle_plane: ControlPlane) -> None:
    flags = ("--kubeconfig", str(idle_plane.kubeconfig), "--timeout", "0.05")
    done = vmherd("conformance", *flags, "--only", "set-scale-in,pool-names,set-remove-mark")
    assert done.returncode == 1, done.stderr
    rows = [line.split()[3:5] for line in done.stdout.splitlines()]
    assert [line[:6] for line in done.stdout.splitlines() if " of 3 " in line] == ["1 of 3", "2 of 3", "3 of 3"]
    assert [row for row in rows if row[:1] == ["failed"]] == [
        ["failed", id] for id in sorted(("set-scale-in", "pool-names", "set-remove-mark"), key=done.stdout.find)
    ]
    assert "reconciled by no controller that was seen" in done.stdout
    assert "expected the VMs pool-0, pool-1, pool-2 within" in done.stdout
    assert Admin(idle_plane.kubeconfig).get(NAMESPACES)["items"] == []
