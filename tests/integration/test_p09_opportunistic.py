"""P9: strategies that never delete VMs. Users may delete VMs."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import eventually, stays
from tests.integration.pool_namespace import PoolNamespace, uids

pytestmark = pytest.mark.cluster

NEVER_DELETES = ("opportunistic", "unmanaged")


def test_p9_the_pool_deletes_no_vm_and_does_not_replace_a_surplus_vm_that_its_user_deletes(
    pools: PoolNamespace,
) -> None:
    for name in NEVER_DELETES:
        pools.make_pool(3, name=name, scaleInStrategy={name: {}})
    before = uids(pools.wait_for_vms(*(f"{name}-{ordinal}" for name in NEVER_DELETES for ordinal in range(3))))
    for name in NEVER_DELETES:
        pools.scale(1, name=name)
    eventually(lambda: {status.get("observedGeneration") for status in pools.pool_statuses().values()} == {2})
    stays(lambda: uids(pools.vms()) == before, what="all stay")
    assert [pools.pool_status(name)["replicas"] for name in NEVER_DELETES] == [3, 3]
    pools.kubectl("delete", "vm", "opportunistic-1", "unmanaged-1", "--timeout=60s")
    left = {name: uid for name, uid in before.items() if not name.endswith("-1")}
    stays(lambda: uids(pools.vms()) == left, for_s=0.7, what="no VM is created while there are too many")
    pools.kubectl("delete", "vm", "opportunistic-0", "unmanaged-0", "--timeout=60s")
    left = {name: uid for name, uid in before.items() if name.endswith("-2")}
    stays(lambda: uids(pools.vms()) == left, for_s=0.7, what="the count is right")
    pools.kubectl("delete", "vm", "opportunistic-2", "unmanaged-2", "--timeout=60s")
    eventually(lambda: pools.vms().keys() == {"opportunistic-0", "unmanaged-0"}, what="the missing VMs are created")
    assert pools.vms_deleted() == {}
