"""P26 on the real API server: VMs that run are marked, and leave after their answer."""

import pytest

from tests.controlplane.documents import READY_AFTER, vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually, reacts
from tests.integration.renewal import VMIS, restarts

pytestmark = pytest.mark.cluster

DRAIN = "vmherd.dev/drain-seconds"
DRAINING = "vmherd.dev/draining"
ANSWER = {"metadata": {"annotations": {"vmherd.dev/drained": "true"}}}
IN_SERVICE = "vmherd.dev/in-service"
LAST_FIRST = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def marks(pools: PoolNamespace) -> dict[str, str]:
    notes = {name: vm["metadata"].get("annotations") or {} for name, vm in pools.vms().items()}
    return {name: each[DRAINING].split()[0] for name, each in notes.items() if DRAINING in each}


def test_p26_a_vm_drains_on_the_real_api_server_and_leaves_after_its_answer(pools: PoolNamespace) -> None:
    template = vm_template(vmi_annotations={READY_AFTER: "50ms"})
    template["spec"]["template"]["metadata"].setdefault("labels", {})[IN_SERVICE] = "true"
    strategies = {"scaleInStrategy": LAST_FIRST, "updateStrategy": LAST_FIRST}
    pools.make(3, template=template, annotations={DRAIN: "900"}, maxUnavailable=1, **strategies)
    pools.wait_ready(3)
    pools.scale(2)
    reacts(lambda: marks(pools) == {"pool-2": "scale-in"})
    assert pools.vms.get("pool-2")["spec"]["template"]["metadata"]["labels"][IN_SERVICE] == "false"
    pools.settle()
    assert len(pools.vms()) == 3
    pools.scale(3)
    reacts(lambda: not marks(pools), what="the mark is taken back")
    assert pools.vms.get("pool-2")["spec"]["template"]["metadata"]["labels"][IN_SERVICE] == "true"
    pools.scale(2)
    reacts(lambda: marks(pools) == {"pool-2": "scale-in"})
    pools.vms.change("pool-2", ANSWER)
    eventually(lambda: pools.vms().keys() == {"pool-0", "pool-1"}, within_s=20, what="pool-2 leaves")
    position = pools.plane.audit_position()
    pools.change_memory("128M")
    reacts(lambda: marks(pools) == {"pool-1": "update"})
    pools.settle()
    assert not pools.requests("delete", since=position, resource=VMIS)
    pools.vms.change("pool-1", ANSWER)
    eventually(lambda: marks(pools) == {"pool-0": "update"}, within_s=30, what="the next VM drains after the restart")
    assert restarts(pools, since=position) == ["pool-1"]
    assert pools.vms.get("pool-1")["spec"]["template"]["metadata"]["labels"][IN_SERVICE] == "true"
    assert {"Draining", "Drained", "DrainCancelled"} <= pools.reasons().keys()
