"""`--observe` in a cluster in use: the controller plans and logs all actions, and writes nothing."""

from pathlib import Path

import pytest

from sandbox.admin import Rejected
from sandbox.audit import read_records
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.release import LEASE

pytestmark = pytest.mark.cluster

WRITES = ("create", "update", "patch", "delete", "deletecollection")


def observed(program: ControllerProcess, sets: SetNamespace) -> list[dict[str, object]]:
    return [line for line in program.lines(msg="reconciled", namespace=sets.namespace) if line.get("level") == "info"]


def test_observe_mode_logs_the_planned_actions_and_writes_nothing(idle_namespace: SetNamespace, tmp_path: Path) -> None:
    """The controller may only read. There are a set, a pool, and a VMI with the labels that the set selects."""
    idle_namespace.make_vmi("orphan")
    idle_namespace.make(3)
    idle_namespace.pools.make(2)
    since = idle_namespace.plane.audit_position()
    with controller_process(idle_namespace.plane, tmp_path, "--observe", wait=False) as program:

        def by_kind() -> dict[object, dict[str, object]]:
            return {line["controller"]: line for line in observed(program, idle_namespace)}

        told = eventually(lambda: by_kind() if len(by_kind()) == 2 else None, what="both are logged")
        assert told is not None
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
    with pytest.raises(Rejected, match="not found"):
        idle_namespace.admin.get(LEASE)
