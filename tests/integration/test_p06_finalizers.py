"""P6: the pool's finalizer, foreign finalizers, and the three cascade options of `kubectl delete`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.controller_process import eventually, owner_uid, stays, steady
from tests.integration.pool_namespace import FINALIZER, HOLD, PoolNamespace, finalizers_of, uids, vm_template

pytestmark = pytest.mark.cluster

FOREIGN = ("test.vmherd.dev/one", "test.vmherd.dev/two")
KUBEVIRTS = "kubevirt.io/virtualMachineControllerFinalize"


def let_pool_go(pools: PoolNamespace) -> None:
    pools.change_pool({"metadata": {"finalizers": None}})


def test_p6_the_pools_finalizer_is_added_and_removed_without_touching_foreign_finalizers(pools: PoolNamespace) -> None:
    pools.make_pool(2, finalizers=FOREIGN)
    pools.wait_for_ordinals(0, 1)
    assert finalizers_of(pools.pool()) == [*FOREIGN, FINALIZER]
    pools.change_pool({"metadata": {"finalizers": [FOREIGN[0], FINALIZER, FOREIGN[1]]}})
    pools.kubectl("delete", "vmpool", "pool", "--wait=false")
    eventually(lambda: finalizers_of(pools.pool()) == list(FOREIGN), what="only our finalizer is removed")
    stays(lambda: pools.pool_exists() and finalizers_of(pools.pool()) == list(FOREIGN), for_s=0.7)
    assert not any(FINALIZER in finalizers_of(vm) for vm in pools.vms().values()), "the VMs went before"
    let_pool_go(pools)
    eventually(lambda: not pools.pool_exists(), what="the pool goes without finalizers")
    eventually(lambda: not pools.vms(), what="the garbage collector deletes the VMs")


def test_p6_the_pools_finalizer_is_added_again_after_a_user_removed_it(pools: PoolNamespace) -> None:
    pools.make_pool(1, finalizers=FOREIGN)
    before = uids(pools.wait_for_ordinals(0))
    pools.change_pool({"metadata": {"finalizers": [FOREIGN[1]]}})
    eventually(lambda: finalizers_of(pools.pool()) == [FOREIGN[1], FINALIZER], what="only our finalizer is back")
    assert uids(pools.vms()) == before
    pools.change_pool({"metadata": {"finalizers": [FINALIZER]}})


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_p6_a_deleted_pool_is_removed_with_its_vms_and_no_vm_is_replaced(pools: PoolNamespace, cascade: str) -> None:
    pools.make_pool(4, template=vm_template(disks=("root",)))
    pools.wait_for_ordinals(0, 1, 2, 3)
    pools.kubectl("delete", "vmpool", "pool", f"--cascade={cascade}", "--timeout=60s")
    assert not pools.pool_exists()
    eventually(lambda: not pools.vms(), what="all VMs go")
    eventually(lambda: not pools.data_volumes() and not pools.claims(), what="their disks go")
    eventually(lambda: not pools.revisions(), what="the revisions go")
    assert sum(pools.vms_created().values()) == 4
    assert not pools.requests("delete"), "it is the garbage collector that deletes"


def test_p6_orphans_stay_without_the_pools_finalizer_and_can_be_deleted(pools: PoolNamespace) -> None:
    # The garbage collector patches the revisions. The server then rewrites their data and compares the bytes.
    odd = {"z": [2.50, 1e22, 0.1, {}], "a": "<é & \u2028>", "none": {"list": []}}
    template = vm_template(disks=("root",), alsoUnknown=odd)
    template["metadata"]["annotations"] = {"note": "<é & \u2028 \u0001\t\f>", "another": ""}
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["pool", "farm"]}]}
    pools.make_pool(3, template=template, selector=selector, scaleInStrategy={"opportunistic": {}})
    before = pools.wait_for_ordinals(0, 1, 2)
    pools.hold_vm("pool-2")
    pools.kubectl("delete", "vmpool", "pool", "--cascade=orphan", "--timeout=60s")
    assert not pools.pool_exists()
    stays(lambda: uids(pools.vms()) == uids(before), for_s=0.7, what="the orphans")
    vms = pools.wait_for_ordinals(0, 1, 2)
    assert [vm["metadata"].get("ownerReferences") for vm in vms.values()] == [None] * 3
    assert {name: finalizers_of(vm) for name, vm in vms.items()} == {
        "pool-0": [KUBEVIRTS],
        "pool-1": [KUBEVIRTS],
        "pool-2": [KUBEVIRTS, HOLD],
    }
    owners = {owner_uid(volume) for volume in pools.data_volumes().values()}
    assert owners == set(uids(vms).values()), "their disks are still their own"
    assert {each.resource for each in pools.requests("delete")} <= {"controllerrevisions"}
    assert pools.revisions() == {}, "no revision stays without an owner"
    pools.kubectl("delete", "vm", "pool-0", "pool-1", "--timeout=60s")
    pools.let_vm_go("pool-2")
    pools.wait_for_ordinals(2)


def test_p6_a_scale_in_to_0_sends_one_delete_for_each_vm_and_no_other_request(pools: PoolNamespace) -> None:
    pools.make_pool(20, template=vm_template(runStrategy="Halted"))
    pools.wait_for_ordinals(*range(20), ready=False)
    pools.wait_until_updated(20)
    eventually(
        lambda: all((vm.get("status") or {}).get("printableStatus") == "Stopped" for vm in pools.vms().values()),
        what="KubeVirt writes no more to the VMs",
    )
    pools.wait_until_seen()
    position = pools.plane.audit_position()
    pools.scale(0)
    eventually(lambda: not pools.vms(), what="all VMs go")
    eventually(lambda: pools.pool_status().get("replicas") == 0, what="the status follows")
    asked = steady(lambda: Counter((each.verb, each.resource) for each in pools.requests(since=position)))
    assert asked.pop(("patch", "virtualmachinepools")), "the status"
    asked.pop(("list", "virtualmachines"), None)  # before its first delete, a process compares its cache
    assert asked == {("delete", "virtualmachines"): 20}


def test_p6_p10_vms_get_and_lose_the_finalizer_when_state_preservation_changes(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=vm_template(disks=("root",), runStrategy="Halted"))
    before = pools.wait_for_ordinals(0, 1, 2, ready=False)
    eventually(lambda: len(pools.claims()) == 3, what="all disks exist")
    assert not any(FINALIZER in finalizers_of(vm) for vm in before.values())
    pools.hold_vm("pool-0")
    position = pools.plane.audit_position()
    pools.change_pool({"spec": {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}})
    eventually(lambda: all(FINALIZER in finalizers_of(vm) for vm in pools.vms().values()), what="all VMs have it")
    assert HOLD in finalizers_of(pools.vm("pool-0"))
    pools.kubectl("delete", "vm", "pool-2", "--timeout=60s")
    pools.wait_for_ordinals(0, 1, 2, ready=False)
    assert pools.claims().keys() == {"root-0", "root-1", "root-2"}
    pools.change_pool({"spec": {"scaleInStrategy": None}})
    eventually(lambda: not any(FINALIZER in finalizers_of(vm) for vm in pools.vms().values()), what="no VM has it")
    assert HOLD in finalizers_of(pools.vm("pool-0"))
    assert not pools.vms_deleted(position)
    assert uids(pools.vms())["pool-1"] == uids(before)["pool-1"]
    pools.let_vm_go("pool-0")


def test_p10_a_surplus_vm_without_the_finalizer_gets_it_before_it_is_deleted(pools: PoolNamespace) -> None:
    """One change of the pool asks for kept disks and for fewer VMs."""
    pools.make_pool(3, template=vm_template(disks=("root",), runStrategy="Halted"))
    pools.wait_for_ordinals(0, 1, 2, ready=False)
    eventually(lambda: len(pools.claims()) == 3, what="all disks exist")
    before = uids(pools.claims())
    pools.change_pool({"spec": {"replicas": 0, "scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}})
    eventually(lambda: not pools.vms(), what="all VMs go")
    stays(lambda: uids(pools.claims()) == before, for_s=1.0, what="the disks")


def test_p6_a_foreground_deletion_waits_for_the_vms(pools: PoolNamespace) -> None:
    pools.make_pool(2)
    pools.wait_for_ordinals(0, 1)
    pools.hold_vm("pool-0")
    pools.kubectl("delete", "vmpool", "pool", "--cascade=foreground", "--wait=false")
    eventually(lambda: pools.vms().keys() == {"pool-0"}, what="the other VM goes")
    stays(lambda: pools.pool_exists() and pools.vms().keys() == {"pool-0"}, for_s=0.7, what="the pool")
    assert FINALIZER not in finalizers_of(pools.vm("pool-0"))
    pools.let_vm_go("pool-0")
    eventually(lambda: not pools.pool_exists(), what="the pool goes")


def test_p6_a_pool_does_not_wait_for_a_vm_with_a_foreign_finalizer(pools: PoolNamespace) -> None:
    pools.make_pool(2)
    pools.wait_for_ordinals(0, 1)
    pools.hold_vm("pool-0")
    pools.delete_vm("pool-0")
    pools.kubectl("delete", "vmpool", "pool", "--timeout=60s")
    eventually(lambda: pools.vms().keys() == {"pool-0"}, what="the other VM goes")
    eventually(lambda: finalizers_of(pools.vm("pool-0")) == [HOLD], what="only the foreign finalizer is left")
    pools.let_vm_go("pool-0")
    eventually(lambda: not pools.vms())


def test_p6_paused_empty_and_unmanaged_pools_can_be_deleted(pools: PoolNamespace) -> None:
    pools.make_pool(1, name="paused")
    pools.make_pool(0, name="empty")
    pools.make_pool(1, name="unmanaged", scaleInStrategy={"unmanaged": {}}, updateStrategy={"unmanaged": {}})
    pools.wait_for_vms("paused-0", "unmanaged-0")
    pools.change_pool({"spec": {"paused": True}}, name="paused")
    eventually(lambda: pools.pool_condition("ReplicaPaused", name="paused"))
    pools.kubectl("delete", "vmpool", "paused", "empty", "unmanaged", "--timeout=60s")
    eventually(lambda: not pools.vms(), what="all VMs go")
