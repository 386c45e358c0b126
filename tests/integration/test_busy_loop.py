"""Sets whose plans keep the event loop of the controller busy. Each test has a controller of its own."""

from pathlib import Path
from typing import Any

import pytest

from controller.leaderelection.lease import QUARANTINE
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.busy_controller import AWAY_S, BUSY
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

LEASE = ("--leader-election-namespace", "default", "--lease-duration", "3s", "--renew-deadline", "2s")
FLAGS = (*LEASE, "--retry-period", "400ms")
PROGRAM = "tests.controlplane.busy_controller"


def lease_of(plane: ControlPlane) -> dict[str, Any]:
    return Kubectl(plane.kubeconfig, "default").json("get", "lease", "vmherd")


def noted(plane: ControlPlane) -> str:
    return str(lease_of(plane)["metadata"].get("annotations", {}).get(QUARANTINE, ""))


def test_a_leader_whose_loop_is_busy_for_longer_than_its_lease_stays_leader_and_the_lease_names_the_set(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    plane, slow = idle_namespace.plane, f"replicaset/{idle_namespace.namespace}/herd"
    with controller_process(plane.kubeconfig, tmp_path, *FLAGS, program=PROGRAM) as program:
        idle_namespace.make(2, annotations={BUSY: "3.5"})
        eventually(lambda: noted(plane) == slow, within_s=3.4, what="the lease names the set while the loop is busy")
        reacts(lambda: idle_namespace.told("Quarantined") == {"herd": 1}, what="the Event of the set")
        assert "vmherd_quarantined_objects 1.0" in program.metrics()
        idle_namespace.wait_for(2)
        assert program.working
        assert len(program.lines(msg="became leader")) == 1
        eventually(lambda: noted(plane) == "", within_s=30, what="the next quick pass ends the quarantine")
        assert program.stop() == 0
    assert lease_of(plane)["spec"]["leaseTransitions"] == 0


def test_a_process_whose_loop_does_not_answer_ends_and_its_successor_takes_the_set_last(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    plane, slow = idle_namespace.plane, f"replicaset/{idle_namespace.namespace}/herd"
    with controller_process(plane.kubeconfig, tmp_path, *FLAGS, program=PROGRAM) as program:
        idle_namespace.make(2, annotations={BUSY: "60"})
        assert program.process.wait(30) == 1
        [last] = program.lines(msg="the event loop does not answer, ending")
        assert last["at_work"] == slow
        assert AWAY_S < last["away_s"] < AWAY_S + 4
        assert "Traceback" not in program.log.read_text()
    assert noted(plane) == slow
    idle_namespace.objects.make(idle_namespace.document(2, name="other"))
    idle_namespace.change({"metadata": {"annotations": {BUSY: None}}})
    (tmp_path / "next").mkdir()
    with controller_process(plane.kubeconfig, tmp_path / "next", *FLAGS, program=PROGRAM) as program:
        eventually(lambda: program.lines(msg="reconciled", name="herd"), within_s=30, what="the set has its turn")
        assert program.lines(msg="reconciled", name="other"), "the other set was first"
        led = program.lines(msg="became leader")[0]["ts"]
        first = {
            name: min(line["ts"] for line in program.lines(msg="reconciled", name=name)) for name in ("herd", "other")
        }
        assert led < first["other"] < first["herd"]
        eventually(lambda: noted(plane) == "", within_s=30, what="a quick pass ends the quarantine")
        assert program.stop() == 0
