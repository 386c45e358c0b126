"""P13: the requests of an update whose VMs KubeVirt does not start again."""

from typing import Any

import pytest

from tests.controlplane.documents import (
    READY_AFTER,
    vm_template,
)
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.watch import watched
from tests.integration.renewal import memories, restarts

pytestmark = pytest.mark.cluster

UPDATED_WITHIN_S = 60.0


def quick(**template: Any) -> dict[str, Any]:
    return vm_template(vmi_annotations={READY_AFTER: "50ms"}, **template)


def test_p13_vms_that_kubevirt_does_not_start_again_are_restarted_through_the_subresource(pools: PoolNamespace) -> None:
    pools.make(2, template=quick(runStrategy="RerunOnFailure"), maxUnavailable=1)
    pools.wait_ready(2)
    position = pools.plane.audit_position()
    with watched(pools, pools.vmis) as seen:
        pools.change_memory("128M")
        pools.wait_ready(2, within_s=UPDATED_WITHIN_S)
    assert set(memories(pools.vmis()).values()) == {"128M"}
    assert seen.least_ready() == {"pool": 1}
    assert restarts(pools, since=position) == []
    sent = [record.name for record in pools.requests("update", since=position)]
    assert sorted(sent) == ["pool-0", "pool-1"], "one request for each VM"
