"""`--observe` in a cluster in use: the controller plans and logs all actions, and writes nothing."""

from pathlib import Path

import pytest

from sandbox.audit import read_records
from tests.cluster import Kubectl
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.release import NAMESPACE

pytestmark = pytest.mark.cluster

WRITES = ("create", "update", "patch", "delete", "deletecollection")


def observed(program: ControllerProcess, sets: SetNamespace) -> list[dict[str, object]]:
    return [line for line in program.lines(msg="reconciled", namespace=sets.namespace) if line.get("level") == "info"]


def kinds_in(lines: list[dict[str, object]]) -> set[str]:
    return {str(line["controller"]) for line in lines}


def test_observe_mode_logs_the_planned_actions_and_writes_nothing(idle_namespace: SetNamespace, tmp_path: Path) -> None:
    """The controller has read permissions only.

    There are a set, a pool, and a VMI with the labels that the set selects.
    """
    idle_namespace.make_vmi("orphan")
    idle_namespace.make(3)
    idle_namespace.pools.make(2)
    since = idle_namespace.plane.audit_position()
    with controller_process(idle_namespace.plane, tmp_path, "--observe", wait=False) as program:
        eventually(lambda: len(kinds_in(observed(program, idle_namespace))) == 2, what="both are logged")
        told = {str(line["controller"]): line for line in observed(program, idle_namespace)}
        assert told["replicaset"]["create_would"] == 2
        assert told["replicaset"]["patch_would"] == 1
        assert any("orphan" in line for line in told["replicaset"]["would"])  # type: ignore[attr-defined]
        assert told["pool"]["patch_would"] == 1
        series = 'vmherd_actions_total{action="create",controller="replicaset",outcome="would"} 2.0'
        assert series in program.metrics()
        assert program.health("readyz")[0] == 200
        idle_namespace.change({"spec": {"replicas": 5}})
        eventually(lambda: observed(program, idle_namespace)[-1].get("create_would") == 4, what="a change is logged")
        program.settle(idle_namespace.namespace, idle_namespace.admin)
        assert program.stop() == 0
    written = [
        (record.verb, record.resource)
        for record in read_records(idle_namespace.plane.audit_log, since)
        if record.credential == program.credential
        and record.verb in WRITES
        and not record.resource.startswith("selfsubject")
    ]
    assert written == []
    assert set(idle_namespace.vmis()) == {"orphan"}
    assert idle_namespace.status() == {"observedGeneration": -1}
    assert idle_namespace.events() == []
    assert (
        Kubectl(idle_namespace.plane.kubeconfig)("get", "lease", "vmherd", "-n", NAMESPACE, check=False).returncode == 1
    )
