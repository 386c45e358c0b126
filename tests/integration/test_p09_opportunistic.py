"""P9: strategies that never delete VMs. Under every strategy, users may delete VMs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.controller_process import eventually, stays
from tests.integration.pool_namespace import PoolNamespace, uids, vm_template

pytestmark = pytest.mark.cluster

STRATEGIES: dict[str, dict[str, Any]] = {
    "opportunistic": {"opportunistic": {}},
    "unmanaged": {"unmanaged": {}},
    "proactive": {"proactive": {}},
}
NEVER_DELETES = ("opportunistic", "unmanaged")


def make_pools(pools: PoolNamespace, *names: str, replicas: int) -> dict[str, str]:
    """Create a pool for each strategy, named after the strategy. Wait for the VMs, and return their UIDs."""
    for name in names:
        pools.make_pool(replicas, name=name, template=vm_template(), scaleInStrategy=STRATEGIES[name])
    return uids(pools.wait_for_vms(*(f"{name}-{ordinal}" for name in names for ordinal in range(replicas))))


def test_p9_the_pool_deletes_no_vm_and_does_not_replace_a_surplus_vm_that_its_user_deletes(
    pools: PoolNamespace,
) -> None:
    before = make_pools(pools, *NEVER_DELETES, replicas=3)
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


def test_p9_a_vm_that_its_user_deletes_is_recreated_with_its_name_under_every_strategy(pools: PoolNamespace) -> None:
    before = make_pools(pools, *STRATEGIES, replicas=3)
    deleted = [f"{name}-1" for name in STRATEGIES]
    pools.kubectl("delete", "vm", *deleted, "--wait=false")
    eventually(
        lambda: not set(uids(pools.vms()).values()) & {before[name] for name in deleted},
        what="the deleted VMs are gone",
    )
    after = uids(pools.wait_for_vms(*before))
    assert {name for name in before if after[name] != before[name]} == set(deleted)
    assert pools.vms_created() == {name: 2 if name in deleted else 1 for name in before}
    assert pools.vms_deleted() == {}


def test_p9_a_vm_that_its_user_deletes_in_the_foreground_is_recreated_too(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=vm_template(disks=("root",)), scaleInStrategy=STRATEGIES["opportunistic"])
    before = uids(pools.wait_for_ordinals(0, 1))
    disks = uids(pools.data_volumes())
    pools.delete_vm("pool-0", foreground=True)
    eventually(lambda: uids(pools.vms()).get("pool-0", before["pool-0"]) != before["pool-0"])
    pools.wait_for_ordinals(0, 1)
    after = uids(pools.data_volumes())
    assert (after["root-0"] == disks["root-0"], after["root-1"] == disks["root-1"]) == (False, True)
