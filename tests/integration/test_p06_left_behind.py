"""P6: a user has removed the finalizer of a pool by force, and the pool is gone. Users can still delete the VMs of this
pool.
"""

from __future__ import annotations

import pytest

from tests.integration.controller_process import eventually, stays
from tests.integration.pool_namespace import FINALIZER, PoolNamespace, vm_template

pytestmark = pytest.mark.cluster


def test_p6_vms_of_a_forcibly_removed_pool_are_deleted_and_their_disks_stay(pools: PoolNamespace) -> None:
    keeps_disks = {"proactive": {"statePreservation": "Offline"}}
    pools.make_pool(2, template=vm_template(disks=("root",)), scaleInStrategy=keeps_disks)
    pools.wait_for_ordinals(0, 1)
    pools.change_pool({"spec": {"paused": True}})
    pools.change_pool({"metadata": {"finalizers": None}})
    pools.kubectl("delete", "vmpool", "pool", "--timeout=60s")
    eventually(lambda: not pools.vms(), what="the garbage collector deletes the VMs")
    kept = pools.data_volumes()
    assert kept.keys() == {"root-0", "root-1"}
    assert not any(disk["metadata"].get("ownerReferences") for disk in kept.values())


def test_p6_a_vm_without_a_pool_keeps_our_finalizer_until_the_vm_is_deleted(pools: PoolNamespace) -> None:
    pools.make_vm("ghost-7", finalizers=(FINALIZER,))
    stays(lambda: FINALIZER in pools.vm("ghost-7")["metadata"]["finalizers"], for_s=0.7)
    pools.kubectl("delete", "vm", "ghost-7", "--timeout=60s")
    assert not pools.vms()
