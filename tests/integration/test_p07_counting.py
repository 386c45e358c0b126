"""P7: the replica counts in the status."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import eventually, stays
from tests.integration.pool_namespace import PoolNamespace

pytestmark = pytest.mark.cluster


def counts(pools: PoolNamespace) -> tuple[int, int]:
    status = pools.pool_status()
    return status.get("replicas", 0), status.get("readyReplicas", 0)


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


def test_p7_a_vm_whose_status_cannot_be_decoded_counts_and_is_not_scaled_in(pools: PoolNamespace) -> None:
    pools.make_pool(2)
    pools.wait_ready(2)
    pools.change_vm_status("pool-1", {"snapshotInProgress": 7})
    eventually(lambda: pools.reasons()["UndecodableVirtualMachine"], what="an Event names the VM")
    pools.scale(3)
    pools.wait_for_vms("pool-0", "pool-1", "pool-2", ready=False)
    eventually(lambda: counts(pools)[0] == 3)
    pools.scale(0)
    eventually(lambda: pools.reasons()["ScaleInHeld"], what="an Event has the reason")
    eventually(lambda: list(pools.vms()) == ["pool-1"], what="the other VMs are gone")
    stays(lambda: list(pools.vms()) == ["pool-1"], what="the VM with the unreadable status stays")
    creates = [record.name for record in pools.requests("create") if record.resource == "virtualmachines"]
    assert sorted(creates) == ["pool-0", "pool-1", "pool-2"]
