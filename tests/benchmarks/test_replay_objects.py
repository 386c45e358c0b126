"""The objects of the replay server."""

from __future__ import annotations

import json

import pytest

from benchmarks import fleet
from benchmarks.replay.objects import Size, fill
from benchmarks.replay.patterns import Pattern
from benchmarks.replay.server import Server
from benchmarks.replay.state import State
from controller.kubevirt.resources import VMIS, VMS

SIZE = Size(sets=3, vmis_of_set=4, pools=2, vms_of_pool=2)


@pytest.fixture
def state() -> State:
    state = State()
    Server(state)
    fill(state, SIZE)
    return state


def test_a_pattern_renders_each_object_with_its_own_texts_and_resource_version():
    pattern = Pattern(
        lambda number: b'{"name":"vm-%d","old":"vm-%d-x","share":"5%%","resourceVersion":"9"}' % (number, number),
        lambda number: {"name": f"vm-{number}"},
    )
    assert json.loads(pattern.render(7, 12)) == {
        "name": "vm-7",
        "old": "vm-76543-x",
        "share": "5%",
        "resourceVersion": "12",
    }


def test_all_objects_of_a_size_exist_under_their_own_names(state):
    counts = {plural: len(found.items) for (_, plural), found in state.collections.items() if found.items}
    assert counts == {
        "controllerrevisions": SIZE.pools + SIZE.sets,
        "virtualmachineinstancereplicasets": SIZE.sets,
        "virtualmachineinstances": SIZE.set_vmis + SIZE.vms,
        "virtualmachinepools": SIZE.pools,
        "virtualmachines": SIZE.vms,
    }
    for collection in state.collections.values():
        for (namespace, name), item in collection.items.items():
            meta = json.loads(item.render())["metadata"]
            assert (meta["namespace"], meta["name"], meta["resourceVersion"]) == (namespace, name, str(item.version))


def test_a_rendered_vmi_is_the_recorded_vmi_except_for_its_times(state):
    items = state.collections[("kubevirt.io", "virtualmachineinstances")].items
    number = 5
    key = (fleet.namespace_of(1), fleet.vmi_name(number, SIZE.vmis_of_set))
    rendered, recorded = (
        VMIS.decode(body) for body in (items[key].render(), fleet.vmi_of_set(number, size=SIZE.vmis_of_set))
    )
    assert rendered.metadata.owner_references == recorded.metadata.owner_references
    assert rendered.metadata.labels == recorded.metadata.labels
    assert rendered.metadata.uid == recorded.metadata.uid


def test_a_vm_of_a_pool_belongs_to_its_pool_and_owns_its_vmi(state):
    key = (fleet.namespace_of(1), fleet.vm_name(3, SIZE.vms_of_pool))
    vm = VMS.decode(state.collections[("kubevirt.io", "virtualmachines")].items[key].render())
    vmi = VMIS.decode(state.collections[("kubevirt.io", "virtualmachineinstances")].items[key].render())
    assert [owner.uid for owner in vm.metadata.owner_references] == [fleet.uid(3, 1)]
    assert [owner.uid for owner in vmi.metadata.owner_references] == [vm.metadata.uid]
