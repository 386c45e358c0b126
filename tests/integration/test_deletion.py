"""R15, P6: the cascade options of `kubectl delete`, and the pool's finalizer."""

from collections import Counter

import pytest

from tests.controlplane.documents import FINALIZER, HOLD, finalizers_of, owner_uid, uids, vm_template
from tests.controlplane.namespace import Namespace, PoolNamespace
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

FOREIGN = ("test.vmherd.dev/one", "test.vmherd.dev/two")
KUBEVIRTS = "kubevirt.io/virtualMachineControllerFinalize"
KEEPS_DISKS = {"proactive": {"statePreservation": "Offline"}}


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_r15_p6_a_deleted_object_takes_its_members_and_no_member_is_replaced(owner: Namespace, cascade: str) -> None:
    disks = {"template": vm_template(disks=("root",))} if isinstance(owner, PoolNamespace) else {}
    owner.make(4, **disks)
    owner.wait_ready(4)
    owner.delete(cascade=cascade)
    assert not owner.exists()
    everything = (owner.vms, owner.vmis, owner.data_volumes, owner.claims, owner.revisions)
    eventually(lambda: not any(objects() for objects in everything), within_s=20, what="all goes")
    owner.settle()
    assert sum(owner.created().values()) == 4
    assert not owner.requests("delete"), "it is the garbage collector that deletes"


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


def test_r15_orphans_stay_unchanged_and_a_recreated_set_adopts_them(sets: Namespace) -> None:
    sets.make(3)
    reacts(lambda: sets.status().get("replicas") == 3)
    before = sets.vmis()
    sets.delete(cascade="orphan")
    assert not sets.exists()
    reacts(lambda: not any(owner_uid(vmi) for vmi in sets.vmis().values()), what="the VMIs have no owner")
    sets.settle()
    assert sets.alive().keys() == before.keys()
    owner = sets.make(3)
    reacts(lambda: {owner_uid(vmi) for vmi in sets.vmis().values()} == {owner["metadata"]["uid"]})
    reacts(lambda: sets.status().get("updatedReplicas") == 3, what="the VMIs count as up to date")
    assert uids(sets.alive()) == uids(before)


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


def test_p6_the_pools_finalizer_is_added_and_removed_without_touching_foreign_finalizers(pools: PoolNamespace) -> None:
    pools.make(2, finalizers=FOREIGN)
    before = uids(pools.wait_for_ordinals(0, 1))
    assert finalizers_of(pools.read()) == [*FOREIGN, FINALIZER]
    pools.objects.set_finalizers("pool", *FOREIGN)
    reacts(lambda: finalizers_of(pools.read()) == [*FOREIGN, FINALIZER], what="our finalizer is back")
    pools.objects.set_finalizers("pool", FOREIGN[0], FINALIZER, FOREIGN[1])
    pools.settle()
    assert uids(pools.vms()) == before
    pools.delete(wait=False)
    reacts(lambda: finalizers_of(pools.read()) == list(FOREIGN), what="only our finalizer is removed")
    pools.settle()
    assert finalizers_of(pools.read()) == list(FOREIGN)
    assert not any(FINALIZER in finalizers_of(vm) for vm in pools.vms().values()), "the VMs went before"
    pools.objects.set_finalizers("pool")
    reacts(lambda: not pools.exists(), what="the pool goes without finalizers")
    eventually(lambda: not pools.vms(), within_s=20, what="the garbage collector deletes the VMs")


def test_p6_a_scale_in_to_0_sends_one_delete_for_each_vm_and_no_other_request(pools: PoolNamespace) -> None:
    pools.make(20, template=vm_template(runStrategy="Halted"))
    pools.wait_until_updated(20)
    wait_until_stopped(pools)
    pools.settle(events=True)
    position = pools.plane.audit_position()
    pools.scale(0)
    eventually(lambda: pools.status().get("replicas") == 0, within_s=20, what="the status follows")
    pools.settle()
    asked = Counter((each.verb, each.resource) for each in pools.requests(since=position))
    assert asked.pop(("patch", "virtualmachinepools")), "the status"
    asked.pop(("list", "virtualmachines"), None)  # before its first delete, a process compares its cache
    assert asked == {("delete", "virtualmachines"): 20}


def wait_until_stopped(pools: PoolNamespace) -> None:
    """Wait until KubeVirt has written the status of all stopped VMs. It writes no more to them."""

    def are_stopped() -> bool:
        return {(vm.get("status") or {}).get("printableStatus") for vm in pools.vms().values()} == {"Stopped"}

    eventually(are_stopped, within_s=20, what="KubeVirt writes no more to the VMs")


def test_p6_a_pool_does_not_wait_for_a_vm_with_a_foreign_finalizer(pools: PoolNamespace) -> None:
    pools.make(2)
    pools.wait_for_ordinals(0, 1)
    pools.vms.hold("pool-0")
    pools.vms.delete("pool-0")
    pools.delete()
    eventually(lambda: pools.vms().keys() == {"pool-0"}, within_s=20, what="the other VM goes")
    reacts(lambda: finalizers_of(pools.vms.get("pool-0")) == [HOLD], what="only the foreign finalizer is left")
    pools.vms.let_go("pool-0")
    reacts(lambda: not pools.vms())


def test_p6_paused_empty_and_unmanaged_pools_can_be_deleted(pools: PoolNamespace) -> None:
    pools.make(1, name="paused")
    pools.make(0, name="empty")
    pools.make(1, name="unmanaged", scaleInStrategy={"unmanaged": {}}, updateStrategy={"unmanaged": {}})
    pools.wait_for_vms("paused-0", "unmanaged-0")
    pools.pause(name="paused")
    pools.delete("paused", "empty", "unmanaged")
    eventually(lambda: not pools.vms(), within_s=20, what="all VMs go")


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
