"""P28 on the real API server: a VM whose node does not answer gets a substitute, which leaves when the VM is back."""

import pytest

from tests.controlplane.documents import BEHAVIOR, READY_AFTER, vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster


def test_p28_a_lost_vm_gets_a_substitute_that_leaves_when_the_vm_is_back(pools: PoolNamespace) -> None:
    template = vm_template(vmi_annotations={READY_AFTER: "50ms"})
    pools.make(2, template=template, annotations={"vmherd.dev/substitute-lost-after-seconds": "2"}, maxUnavailable=1)
    pools.wait_ready(2)
    uid = pools.vms.get("pool-0")["metadata"]["uid"]
    pools.vmis.change("pool-0", {"metadata": {"annotations": {BEHAVIOR: "lost"}}})
    eventually(lambda: pools.vms().keys() == {"pool-0", "pool-1", "pool-2"}, within_s=20, what="pool-2 stands in")
    assert pools.vms.get("pool-2")["metadata"]["annotations"]["vmherd.dev/substitute"] == "true"
    reacts(lambda: pools.reasons()["VMLost"], what="an Event names the lost VM")
    eventually(lambda: pools.status().get("printableStatus") == "Running", what="the pool has what it asks for")
    assert pools.status()["problem"].startswith("pool-0: NodeLost, its node ")
    pools.settle()
    assert pools.created().total() == 3
    pools.vmis.change("pool-0", {"metadata": {"annotations": {BEHAVIOR: None}}})
    eventually(lambda: pools.vms().keys() == {"pool-0", "pool-1"}, within_s=60, what="the substitute leaves")
    assert pools.vms.get("pool-0")["metadata"]["uid"] == uid
