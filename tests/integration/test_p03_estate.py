"""P3: a VM that is recreated under its name gets new disks. The VM never uses disks that will be deleted."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.controller_process import eventually, stays
from tests.integration.pool_namespace import PoolNamespace, uids, vm_template

pytestmark = pytest.mark.cluster


def test_p3_a_recreated_vm_has_new_disks_that_stay(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=vm_template(disks=("root", "data")))
    before = pools.wait_for_ordinals(0, 1, 2)
    disks = uids(pools.data_volumes())
    pools.kubectl("delete", "vm", "--all", "--wait=false")
    eventually(lambda: not set(uids(pools.vms()).values()) & set(uids(before).values()), what="the old VMs are gone")
    after = pools.wait_for_ordinals(0, 1, 2)
    renewed = uids(pools.data_volumes())
    assert renewed.keys() == disks.keys()
    assert not set(renewed.values()) & set(disks.values())
    stays(lambda: uids(pools.data_volumes()) == renewed and uids(pools.vms()) == uids(after), for_s=1.5)
    owners = {disk["metadata"]["ownerReferences"][0]["uid"] for disk in pools.data_volumes().values()}
    assert owners == set(uids(after).values())


def test_p3_a_create_waits_for_a_claim_that_the_old_vm_owns_without_a_data_volume(pools: PoolNamespace) -> None:
    """CDI can delete a finished DataVolume. Its PersistentVolumeClaim then belongs to the VM."""
    pools.make_pool(0, template=vm_template(disks=("root",)))
    eventually(lambda: pools.pool_status().get("observedGeneration"), what="a pass for the pool")
    uid = "00000000-0000-0000-0000-000000000000"
    old = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "pool-0", "uid": uid, "controller": True}
    pools.make_claim("root-0")
    pools.change_claim("root-0", {"metadata": {"finalizers": ["example.org/slow"], "ownerReferences": [old]}})
    pools.scale(1)
    stays(lambda: not pools.vms(), for_s=1.5, what="the VM waits")
    assert pools.pool_condition("ReplicaFailure") is None
    pools.change_claim("root-0", {"metadata": {"finalizers": None}})
    vms = pools.wait_for_ordinals(0)
    claim = eventually(lambda: pools.claims().get("root-0"), what="a new claim")
    assert uid not in {each["uid"] for each in claim["metadata"].get("ownerReferences", ())}
    assert vms.keys() == {"pool-0"}


def test_p3_a_create_that_waits_for_a_disk_of_a_deleted_vm_is_no_failure(pools: PoolNamespace) -> None:
    pools.make_pool(0, template=vm_template(disks=("root",)))
    eventually(lambda: pools.pool_status().get("observedGeneration"), what="a pass for the pool")
    gone = {"metadata": {"name": "pool-0", "uid": "00000000-0000-0000-0000-000000000000"}}
    pools.make_disk("root-0", owner=gone, finalizers=("example.org/slow",))
    pools.scale(1)
    stays(lambda: not pools.vms(), for_s=1.5, what="the VM waits")
    assert pools.pool_condition("ReplicaFailure") is None
    assert pools.reasons()["FailedCreate"] == 0
    pools.let_disk_go("root-0")
    pools.wait_for_ordinals(0)


def test_p3_a_burst_asks_for_its_disks_with_lists_and_one_create_waits(pools: PoolNamespace) -> None:
    pools.make_pool(0, template=vm_template(disks=("root",), runStrategy="Halted"))
    eventually(lambda: pools.pool_status().get("observedGeneration"), what="a pass for the pool")
    gone = {"metadata": {"name": "pool-25", "uid": "00000000-0000-0000-0000-000000000000"}}
    pools.make_disk("root-25", owner=gone, finalizers=("example.org/slow",))
    position = pools.plane.audit_position()
    pools.scale(30)
    others = [ordinal for ordinal in range(30) if ordinal != 25]
    pools.wait_for_ordinals(*others, ready=False)
    reads = [each for each in pools.requests("get", "list", since=position) if each.code == 200 or each.verb == "list"]
    # The create that waits reads its disk again each second.
    once = [each for each in reads if each.resource != "virtualmachinepools" and each.name != "root-25"]
    asked = Counter((each.verb, each.resource) for each in once)
    assert asked["list", "datavolumes"] >= 1
    assert asked["list", "persistentvolumeclaims"] >= 1
    assert asked.total() < 15, asked
    assert {each.code for each in reads} == {200}
    pools.let_disk_go("root-25")
    pools.wait_for_ordinals(*range(30), ready=False)
