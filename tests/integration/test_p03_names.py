"""P3: a new VM gets the smallest ordinal whose name is free. No two VMs have the same ordinal."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import eventually, stays
from tests.integration.pool_namespace import PoolNamespace, uids

pytestmark = pytest.mark.cluster


def test_p3_a_terminating_vm_keeps_its_name_and_its_replacement_waits_for_the_name(pools: PoolNamespace) -> None:
    pools.make_pool(2)
    before = uids(pools.wait_for_ordinals(0, 1))
    pools.hold_vm("pool-0")
    pools.delete_vm("pool-0")
    stays(lambda: uids(pools.vms()) == before, what="no VM under another ordinal")
    assert pools.vms_created() == {"pool-0": 1, "pool-1": 1}
    pools.let_vm_go("pool-0")
    eventually(lambda: uids(pools.vms()).get("pool-0", before["pool-0"]) != before["pool-0"], what="its replacement")
    after = uids(pools.wait_for_ordinals(0, 1))
    assert after["pool-1"] == before["pool-1"]
    assert pools.vms_created() == {"pool-0": 2, "pool-1": 1}
    assert {record.code for record in pools.requests("create")} == {201}, "none was tried before its time"
