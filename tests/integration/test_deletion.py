"""R15, P6: deletions with `kubectl delete`, and the pool's finalizer."""

import pytest

from tests.controlplane.documents import FINALIZER, HOLD, finalizers_of, owner_uid, uids, vm_template
from tests.controlplane.namespace import Namespace, PoolNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

KUBEVIRTS = "kubevirt.io/virtualMachineControllerFinalize"
KEEPS_DISKS = {"proactive": {"statePreservation": "Offline"}}


def test_r15_p6_a_foreground_deletion_waits_for_the_members(owner: Namespace) -> None:
    members = owner.all_of(owner.members)
    owner.make(2)
    owner.wait_ready(2)
    name = min(members())
    members.hold(name)
    owner.delete(cascade="foreground", wait=False)
    eventually(lambda: members().keys() == {name}, within_s=20, what="the other member goes")
    owner.settle()
    assert owner.exists()
    assert members().keys() == {name}, "no replacement"
    assert FINALIZER not in finalizers_of(members.get(name))
    members.let_go(name)
    eventually(lambda: not owner.exists(), within_s=20, what="the owner goes")


def test_p6_orphans_stay_without_the_pools_finalizer_and_can_be_deleted(pools: PoolNamespace) -> None:
    # The garbage collector patches the revisions. The server then rewrites their data and compares the bytes.
    odd = {"z": [2.50, 1e22, 0.1, {}], "a": "<é & \u2028>", "none": {"list": []}}
    template = vm_template(disks=("root",), alsoUnknown=odd)
    template["metadata"]["annotations"] = {"note": "<é & \u2028 \u0001\t\f>", "another": ""}
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["pool", "farm"]}]}
    pools.make(3, template=template, selector=selector, scaleInStrategy={"opportunistic": {}})
    before = pools.wait_for_ordinals(0, 1, 2)
    pools.vms.hold("pool-2")
    pools.delete(cascade="orphan")
    assert not pools.exists()
    pools.settle()
    vms = pools.wait_for_ordinals(0, 1, 2)
    assert uids(vms) == uids(before)
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
    pools.vms.let_go("pool-2")
    pools.wait_for_ordinals(2)


def test_p6_vms_of_a_forcibly_removed_pool_are_deleted_and_their_disks_stay(pools: PoolNamespace) -> None:
    pools.make(2, template=vm_template(disks=("root",)), scaleInStrategy=KEEPS_DISKS)
    pools.wait_for_ordinals(0, 1)
    pools.pause()
    pools.objects.set_finalizers("pool")
    pools.delete()
    eventually(lambda: not pools.vms(), within_s=20, what="the garbage collector deletes the VMs")
    kept = pools.data_volumes()
    assert kept.keys() == {"root-0", "root-1"}
    assert not any(disk["metadata"].get("ownerReferences") for disk in kept.values())


def test_p6_a_vm_without_a_pool_keeps_our_finalizer_until_the_vm_is_deleted(pools: PoolNamespace) -> None:
    with pools.at_rest():
        pools.make_vm("ghost-7", finalizers=[FINALIZER])
    assert FINALIZER in finalizers_of(pools.vms.get("ghost-7"))
    pools.kubectl("delete", "vm", "ghost-7", "--timeout=60s")
    assert not pools.vms()
