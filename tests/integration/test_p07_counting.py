"""P7: the replica counts in the status."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import BEHAVIOR, PoolNamespace

pytestmark = pytest.mark.cluster


def counts(pools: PoolNamespace) -> tuple[int, int]:
    status = pools.pool_status()
    return status.get("replicas", 0), status.get("readyReplicas", 0)


def test_p7_replicas_counts_all_members_and_ready_replicas_counts_ready_members(pools: PoolNamespace) -> None:
    pools.make_vm("stranger")
    pools.make_pool(3)
    pools.wait_ready(3)
    pools.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}})
    eventually(lambda: counts(pools) == (3, 2), what="one VM is not ready")
    pools.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: None}}})
    eventually(lambda: counts(pools) == (3, 3), what="all are ready again")


def test_p7_members_that_are_being_deleted_count_until_they_are_gone(pools: PoolNamespace) -> None:
    pools.make_pool(3)
    pools.wait_for_ordinals(0, 1, 2)
    for name in ("pool-0", "pool-1", "pool-2"):
        pools.hold_vm(name)
    pools.scale(1)
    eventually(lambda: pools.pool_status().get("observedGeneration") == pools.pool()["metadata"]["generation"])
    eventually(lambda: sum("deletionTimestamp" in vm["metadata"] for vm in pools.vms().values()) == 2)
    eventually(lambda: counts(pools) == (3, 1), what="three VMs, one of them ready")
    for name in ("pool-0", "pool-1", "pool-2"):
        pools.let_vm_go(name)
    eventually(lambda: counts(pools) == (1, 1), what="two are gone")
