"""`vmherd conformance` as a user types it: on a cluster without a controller, and interrupted.

`tests/conformance/test_cases_cluster.py` runs all cases with a controller.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.admin import Admin
from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = "/api/v1/namespaces?labelSelector=vmherd.dev/conformance"


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("VMHERD_", "KUBE"))}


def vmherd(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controller", *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def bare_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    with running_plane(control_plane_binaries) as plane:
        yield plane


def test_without_a_controller_the_cases_fail_and_leave_nothing(bare_plane: ControlPlane) -> None:
    flags = ("--kubeconfig", str(bare_plane.kubeconfig), "--timeout", "0.05")
    done = vmherd("conformance", *flags, "--only", "set-scale-in,pool-names,set-remove-mark")
    assert done.returncode == 1, done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines()]
    assert [row for row in rows if row[:1] == ["failed"]] == [
        ["failed", id] for id in sorted(("set-scale-in", "pool-names", "set-remove-mark"), key=done.stdout.find)
    ]
    assert "reconciled by no controller that was seen" in done.stdout
    assert "expected the VMs pool-0, pool-1, pool-2 within" in done.stdout
    assert Admin(bare_plane.kubeconfig).get(NAMESPACES)["items"] == []
