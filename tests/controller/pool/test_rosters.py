"""The roster of a pool always equals a full count of the VMs and VMIs in the stores."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec.structs import replace

from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.plan import plan
from controller.pool.rosters import MemberCaches, PoolRosters
from controller.pool.snapshot import VM_INDEXES, Snapshot
from controller.pool.status import next_status
from controller.pool.traits import VMs, traits_of
from controller.runtime import members, rosters
from controller.runtime.members import Group, Members
from informers.store import Store
from tests.controller.pool.test_properties import lived
from tests.fakes import stores
from tests.pool_builders import pool, vm, vmi
from tests.strategies import choice

OWNERS = (pool("one", uid="uid-1"), pool("two", uid="uid-2"))
OWNER_OR_NONE = st.sampled_from([*OWNERS, OWNERS[0], OWNERS[0], None])


@pytest.fixture(autouse=True, scope="module")
def small_rosters() -> Iterator[None]:
    """Pools with two VMs have a roster, chunks have three members, and slices have two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rosters, "SMALL", 2)
        patch.setattr(rosters, "SLICE", 2)
        for module in (members, rosters):
            patch.setattr(module, "CHUNK", 3)
        yield


def contents(read: tuple[VMs, Mapping[str, VirtualMachineInstance]]) -> object:
    """The names and versions of the VMs of each group, and of the VMIs."""
    found, vmis = read
    groups: dict[Hashable, set[tuple[str, str]]] = {}
    for group in found.groups:
        each = [vm for chunk in group.chunks for vm in chunk]
        (traits,) = {traits_of(vm, vmis.get(vm.metadata.name)) for vm in each}
        assert traits not in groups
        groups[traits] = {(vm.metadata.name, vm.metadata.resource_version) for vm in each}
    return groups, {name: vmi.metadata.resource_version for name, vmi in vmis.items()}


class RosterMachine(RuleBasedStateMachine):
    """VMs and their VMIs are added, changed and removed, one by one or by a new list."""

    def __init__(self) -> None:
        super().__init__()
        self.vms: Store[VirtualMachine] = Store(indexes=VM_INDEXES)
        self.vmis: Store[VirtualMachineInstance] = Store()
        self.rosters = PoolRosters(self.vms, self.vmis)
        self.caches = MemberCaches(self.vms, self.vmis)
        self.version = 0

    def draw_vm(self, data: st.DataObject) -> VirtualMachine:
        self.version += 1
        return vm(
            f"one-{data.draw(st.integers(0, 9))}",
            owner=data.draw(OWNER_OR_NONE),
            uid=f"uid-{data.draw(st.integers(0, 1))}",
            ready=data.draw(st.booleans()),
            printable=data.draw(choice("Running", "Running", "Starting")),
            revision=data.draw(choice("one-1", "one-2")),
            version=str(self.version),
        )

    def draw_vmi(self, data: st.DataObject) -> VirtualMachineInstance:
        owner = self.draw_vm(data)
        return vmi(owner, ready=data.draw(st.booleans()), version=str(self.version), uid=f"uid-{self.version % 2}")

    @rule(data=st.data(), number=st.integers(1, 6))
    def apply(self, data, number):
        for _ in range(number):
            self.vms.apply(self.draw_vm(data))
            self.vmis.apply(self.draw_vmi(data))

    @rule(data=st.data(), of_vms=st.booleans())
    def remove(self, data, of_vms):
        store = self.vms if of_vms else self.vmis
        if len(store):
            store.drop(data.draw(st.sampled_from(store.values())).metadata)

    @rule(data=st.data(), of_vms=st.booleans())
    def list_again(self, data, of_vms):
        store, draw = (self.vms, self.draw_vm) if of_vms else (self.vmis, self.draw_vmi)
        stores.replace(store, [*store.values()[::2], draw(data)], str(self.version))

    @rule(owner=st.sampled_from([*OWNERS, OWNERS[0]]))
    def read(self, owner):
        assert contents(self.rosters.read(owner.metadata)) == contents(self.caches.read(owner.metadata))

    @rule(owner=st.sampled_from(OWNERS), slices=st.integers(1, 9))
    def prepare(self, owner, slices):
        for _ in islice(self.rosters.prepare(owner.metadata), slices):
            pass

    @rule(data=st.data(), owner=st.sampled_from(OWNERS), of_vms=st.booleans())
    def prepare_while_the_members_change(self, data, owner, of_vms):
        changes = [
            lambda: self.apply(data, 1),
            lambda: self.remove(data, of_vms),
            lambda: self.list_again(data, of_vms),
        ]
        for _ in islice(self.rosters.prepare(owner.metadata), 5):
            data.draw(st.sampled_from(changes))()
        self.read(owner)

    @rule(owner=st.sampled_from(OWNERS))
    def forget(self, owner):
        self.rosters.forget(owner.metadata.key)


TestRosters = RosterMachine.TestCase
TestRosters.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def one_by_one(seen: Snapshot) -> Snapshot:
    """The snapshot with each VM alone in its group, as if all VMs were read."""
    return replace(seen, members=Members(tuple(Group(1, ((each,),)) for each in seen.members)))


@given(lived())
def test_a_plan_from_groups_is_the_plan_from_single_vms(simulation):
    seen = simulation.snapshot()
    alone = one_by_one(seen)
    assert plan(alone) == plan(seen)
    assert next_status(alone, ()) == next_status(seen, ())


def test_one_change_reads_one_vm(monkeypatch):
    vms: Store[VirtualMachine] = Store(indexes=VM_INDEXES)
    vmis: Store[VirtualMachineInstance] = Store()
    for each in (vm(f"one-{number}", owner=OWNERS[0]) for number in range(60)):
        vms.apply(each)
        vmis.apply(vmi(each))
    found = PoolRosters(vms, vmis)
    before, vmis_before = found.read(OWNERS[0].metadata)
    monkeypatch.setattr(vms, "by_index", lambda *_: pytest.fail("all VMs are read"))
    vmis.apply(vmi(vm("one-7", owner=OWNERS[0]), ready=False, version="9"))
    after, vmis_after = found.read(OWNERS[0].metadata)
    assert [len(before.groups), len(after.groups)] == [1, 2]
    assert [vmis_before["one-7"].metadata.resource_version, vmis_after["one-7"].metadata.resource_version] == ["1", "9"]
    assert len(vmis_after) == 60
