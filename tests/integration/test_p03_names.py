"""P3: a new VM gets the smallest ordinal whose name is free. No two VMs have the same ordinal."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import eventually, owned_by, stays
from tests.integration.pool_namespace import PoolNamespace, is_vm_ready, uids

pytestmark = pytest.mark.cluster

ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}


def test_p3_names_have_the_smallest_ordinals_and_gaps_are_filled(pools: PoolNamespace) -> None:
    pools.make_pool(5, scaleInStrategy=ASCENDING)
    pools.wait_for_ordinals(0, 1, 2, 3, 4)
    pools.scale(2)
    before = uids(pools.wait_for_ordinals(3, 4))
    pools.scale(4)
    after = uids(pools.wait_for_ordinals(0, 1, 3, 4))
    assert after.items() >= before.items(), "those that were there are left alone"
    pools.scale(6)
    pools.wait_for_ordinals(0, 1, 2, 3, 4, 5)


def test_p3_a_name_of_a_foreign_vm_is_skipped_until_it_is_free(pools: PoolNamespace) -> None:
    pools.make_vm("pool-1", labels={"app": "other"})
    eventually(lambda: is_vm_ready(pools.vm("pool-1")))
    pool = pools.make_pool(0)
    pools.wait_until_seen()
    before = pools.vm("pool-1")
    pools.scale(2)
    vms = pools.wait_for_ordinals(0, 1, 2)
    assert sorted(owned_by(vms.values(), pool)) == ["pool-0", "pool-2"]
    pools.wait_ready(2)
    taken = pools.vm("pool-1")
    assert (taken["metadata"]["resourceVersion"], taken["spec"]) == (
        before["metadata"]["resourceVersion"],
        before["spec"],
    )
    assert len(pools.requests("create")) == 3, "two VMs and a revision: no name was tried in vain"
    pools.delete_vm("pool-1")
    pools.wait_for_ordinals(0, 2)
    pools.wait_until_seen()
    pools.scale(3)
    assert sorted(owned_by(pools.wait_for_ordinals(0, 1, 2).values(), pool)) == ["pool-0", "pool-1", "pool-2"]


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
