"""`vmherd conformance` as a user types it: on a cluster without a controller, and interrupted.

`tests/conformance/test_cases_cluster.py` runs all cases with a controller.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.admin import Admin
from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.controlplane.waits import eventually

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_removes_its_namespaces(bare_plane: ControlPlane, number: signal.Signals) -> None:
    admin = Admin(bare_plane.kubeconfig)
    line = [sys.executable, "-m", "controller", "conformance", "--kubeconfig", str(bare_plane.kubeconfig)]
    process = subprocess.Popen(
        [*line, "--timeout", "1", "--only", "set-scale-in,pool-scale-in"],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: len(admin.get(NAMESPACES)["items"]) == 2, what="a namespace for each probe")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in out + err) == (130, False), err
    assert admin.get(NAMESPACES)["items"] == []
