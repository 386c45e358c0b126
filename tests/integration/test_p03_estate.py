"""P3: a VM that comes back under its name gets disks of its own, and not those that are about to go."""

from __future__ import annotations

import pytest

from tests.integration.herd import eventually, stays
from tests.integration.ranch import Ranch, uids, vm_template

pytestmark = pytest.mark.cluster


def test_p3_a_vm_that_comes_back_has_new_disks_that_stay(ranch: Ranch) -> None:
    ranch.make_pool(3, template=vm_template(disks=("root", "data")))
    before = ranch.wait_for_ordinals(0, 1, 2)
    disks = uids(ranch.data_volumes())
    ranch.kubectl("delete", "vm", "--all", "--wait=false")
    eventually(lambda: not set(uids(ranch.vms()).values()) & set(uids(before).values()), what="the old VMs are gone")
    after = ranch.wait_for_ordinals(0, 1, 2)
    renewed = uids(ranch.data_volumes())
    assert renewed.keys() == disks.keys()
    assert not set(renewed.values()) & set(disks.values())
    stays(lambda: uids(ranch.data_volumes()) == renewed and uids(ranch.vms()) == uids(after), for_s=1.5)
    owners = {disk["metadata"]["ownerReferences"][0]["uid"] for disk in ranch.data_volumes().values()}
    assert owners == set(uids(after).values())


def test_p3_a_create_waits_for_a_disk_whose_old_owner_is_gone_and_nobody_sees_a_failure(ranch: Ranch) -> None:
    ranch.make_pool(0, template=vm_template(disks=("root",)))
    eventually(lambda: ranch.pool_status().get("observedGeneration"), what="the pool is looked at")
    gone = {"metadata": {"name": "pool-0", "uid": "00000000-0000-0000-0000-000000000000"}}
    ranch.make_disk("root-0", owner=gone, finalizers=("example.org/slow",))
    ranch.scale(1)
    stays(lambda: not ranch.vms(), for_s=1.5, what="the VM waits")
    assert ranch.pool_condition("ReplicaFailure") is None
    assert ranch.reasons()["FailedCreate"] == 0
    ranch.let_disk_go("root-0")
    ranch.wait_for_ordinals(0)
