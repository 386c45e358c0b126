"""The objects of a large cluster."""

import json

from benchmarks.fleet import Size, shapes
from benchmarks.replay.store import Store
from controller.kubevirt.resources import VMIS, VMS

SIZE = Size(sets=3, vmis_of_set=4, pools=2, vms_of_pool=2)


def test_all_objects_of_a_size_exist_under_their_own_names():
    store = Store(SIZE)
    counts = {plural: len(found.items) for (_, plural), found in store.collections.items() if found.items}
    assert counts == {
        "controllerrevisions": SIZE.pools + SIZE.sets,
        "virtualmachineinstancereplicasets": SIZE.sets,
        "virtualmachineinstances": SIZE.set_vmis + SIZE.vms,
        "virtualmachinepools": SIZE.pools,
        "virtualmachines": SIZE.vms,
    }
    for collection in store.collections.values():
        for (namespace, name), item in collection.items.items():
            meta = json.loads(item.render())["metadata"]
            assert (meta["namespace"], meta["name"], meta["resourceVersion"]) == (namespace, name, str(item.version))


def test_each_text_has_its_place_and_each_number_is_a_number():
    made = shapes(SIZE)
    assert all(b"<" not in shape.render(1) for shape in made.values())
    pool = json.loads(made["pool"].render(1, 12, replicas="7"))
    assert (pool["spec"]["replicas"], pool["metadata"]["resourceVersion"]) == (7, "12")
    assert pool["spec"]["maxUnavailable"] == "10%"


def test_a_vmi_belongs_to_its_set_and_a_vm_of_a_pool_owns_its_vmi():
    made = shapes(SIZE)
    owner = json.loads(made["set"].render(1))["metadata"]
    vmi = VMIS.decode(made["VMI of a set"].render(5))
    assert [(each.name, each.uid) for each in vmi.metadata.owner_references] == [(owner["name"], owner["uid"])]
    pool = json.loads(made["pool"].render(1))["metadata"]
    vm, running = VMS.decode(made["VM of a pool"].render(3)), VMIS.decode(made["VMI of a VM"].render(3))
    assert [(each.name, each.uid) for each in vm.metadata.owner_references] == [(pool["name"], pool["uid"])]
    assert [each.uid for each in running.metadata.owner_references] == [vm.metadata.uid]
    assert running.metadata.name == vm.metadata.name
