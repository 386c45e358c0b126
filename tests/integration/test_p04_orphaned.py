"""P4: a pool is deleted with --cascade=orphan, and the cache of pools shows the deletion late. No VM is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.actions import HoldWatch
from tests.faults.rules import Match, Rule
from tests.faults.threads import fault_proxy_in_thread
from tests.integration.controller_process import (
    PATIENT_LEASE,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    stays,
)
from tests.integration.pool_namespace import PoolNamespace, vm_template

pytestmark = pytest.mark.cluster

POOLS = "virtualmachinepools"


def test_p4_orphans_are_not_replaced_while_the_cache_still_shows_their_pool(
    idle_namespace: ReplicaSetNamespace, tmp_path: Path
) -> None:
    plane = idle_namespace.plane
    pools = PoolNamespace(plane, idle_namespace.namespace)
    with (
        fault_proxy_in_thread(plane.url, plane.ca) as proxy,
        controller_process(plane, tmp_path, *PATIENT_LEASE, through=proxy.write_kubeconfig),
    ):
        pools.make_pool(2, template=vm_template(running=False))
        pools.wait_until_updated(2)
        held = proxy.add(Rule(Match("watch", POOLS), HoldWatch(), times=None))
        pools.kubectl("delete", "vmpool", "pool", "--cascade=orphan", "--wait=false")
        eventually(
            lambda: not any(vm["metadata"].get("ownerReferences") for vm in pools.vms().values()),
            what="the garbage collector removes the owner of the VMs",
        )
        eventually(
            lambda: any(each.resource == POOLS for each in pools.requests("get")),
            what="the controller reads the pool before it replaces the VMs",
        )
        stays(lambda: pools.vms().keys() == {"pool-0", "pool-1"}, for_s=1.5, what="the orphans, and no other VM")
        proxy.remove(held)
        eventually(lambda: not pools.pool_exists(), what="the pool is gone")
        assert pools.vms_created() == {"pool-0": 1, "pool-1": 1}
