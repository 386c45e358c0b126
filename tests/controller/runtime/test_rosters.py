"""A roster always equals a full count of the members in the store."""

import sys
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_ready
from controller.replicaset.rosters import VMIRosters, members_of
from controller.replicaset.snapshot import VMI_INDEXES
from controller.replicaset.traits import VMIs, group_vmis, traits_of
from controller.runtime.members import rosters
from controller.runtime.members.groups import Group
from informers.store import Store
from tests.builders import LABELS, replicaset, vmi
from tests.fakes import stores
from tests.strategies import choice

OWNERS = (replicaset("one", uid="uid-1"), replicaset("two", uid="uid-2"))
SUCCESSOR = replicaset("one", uid="uid-3")
"""A set with the name of the first set."""

MORE_LABELS = st.sampled_from([{}, {}, {"extra": "yes"}, {"kubevirt.io/nodeName": "node-1"}])


@pytest.fixture(autouse=True, scope="module")
def small_rosters() -> Iterator[None]:
    """Sets with two members have a roster, and slices have two members."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rosters, "SMALL", 2)
        patch.setattr(rosters, "SLICE", 2)
        yield


def contents(found: VMIs) -> dict[Hashable, set[tuple[str, str]]]:
    """The names and versions of the VMIs of each group."""
    groups = {}
    for group in found.groups:
        (traits,) = {traits_of(each) for each in group}
        assert traits not in groups
        groups[traits] = {(each.metadata.name, each.metadata.resource_version) for each in group}
        assert len(groups[traits]) == len(group)
    return groups


def draw_vmi(draw: st.DrawFn, version: int) -> VirtualMachineInstance:
    """A VMI of any owner or none, with any state and labels."""
    owner = draw(st.sampled_from([*OWNERS, OWNERS[0], OWNERS[0], SUCCESSOR, None]))
    if owner is OWNERS[0] and not draw(st.integers(0, 5)):
        # A wrong name in an owner reference does not matter, because Kubernetes goes by the UID.
        owner = replicaset("wrong-name", uid=owner.metadata.uid)
    return vmi(
        f"vm-{draw(st.integers(0, 15))}",
        owner=owner,
        uid=f"uid-{draw(st.integers(0, 1))}",
        labels=dict(LABELS) | draw(MORE_LABELS),
        phase=draw(choice("Running", "Running", "Scheduling", "Failed")),
        ready=draw(st.booleans()),
        deleting=draw(st.integers(0, 9)) == 0,
        namespace=draw(choice("default", "default", "default", "elsewhere")),
        version=str(version),
    )


class RosterMachine(RuleBasedStateMachine):
    """VMIs are added, changed and removed, one by one or by a new list."""

    def __init__(self) -> None:
        super().__init__()
        self.vmis: Store[VirtualMachineInstance] = Store(indexes=VMI_INDEXES)
        self.rosters = VMIRosters(self.vmis)
        self.version = 0
        self.kept: list[tuple[VMIs, dict[Hashable, set[tuple[str, str]]]]] = []
        """Earlier results that the test has not read yet, with their contents."""

    def draw(self, data: st.DataObject) -> VirtualMachineInstance:
        self.version += 1
        return draw_vmi(data.draw, self.version)

    @rule(data=st.data(), number=st.integers(1, 6))
    def apply(self, data, number):
        for _ in range(number):
            self.vmis.apply(self.draw(data))

    def apply_one(self):
        self.version += 1
        number = self.version % 16
        self.vmis.apply(vmi(f"vm-{number}", owner=OWNERS[0], ready=number % 2 == 0, version=str(self.version)))

    def list_again_half(self):
        stores.replace(self.vmis, self.vmis.values()[::2], str(self.version))

    @rule(data=st.data())
    def remove(self, data):
        if len(self.vmis):
            gone = data.draw(st.sampled_from(self.vmis.values()))
            self.version += 1
            self.vmis.drop(gone.metadata)

    @rule(data=st.data(), number=st.integers(0, 12))
    def list_again(self, data, number):
        kept = self.vmis.values()[:: data.draw(st.integers(1, 3))]
        stores.replace(self.vmis, [*kept, *(self.draw(data) for _ in range(number))], str(self.version))

    @rule(owner=st.sampled_from([*OWNERS, SUCCESSOR]))
    def read(self, owner):
        expected = contents(group_vmis(members_of(owner.metadata, self.vmis)))
        assert contents(self.rosters.read(owner.metadata)) == expected

    @rule(owner=st.sampled_from(OWNERS))
    def keep(self, owner):
        expected = contents(group_vmis(members_of(owner.metadata, self.vmis)))
        self.kept.append((self.rosters.read(owner.metadata), expected))

    @rule()
    def read_kept(self):
        while self.kept:
            found, expected = self.kept.pop()
            assert contents(found) == expected

    @rule(owner=st.sampled_from(OWNERS), slices=st.integers(1, 9))
    def prepare(self, owner, slices):
        for _ in islice(self.rosters.prepare(owner.metadata), slices):
            pass

    @rule(data=st.data(), owner=st.sampled_from(OWNERS))
    def prepare_while_the_members_change(self, data, owner):
        for _ in islice(self.rosters.prepare(owner.metadata), 9):
            data.draw(st.sampled_from([self.apply_one, self.list_again_half, self.rosters.replaced]))()
        self.read(owner)

    @rule(owner=st.sampled_from(OWNERS))
    def forget(self, owner):
        self.rosters.forget(owner.metadata.key)

    @invariant()
    def the_first_set_is_up_to_date(self):
        if self.version % 3 == 0:
            self.read(OWNERS[0])


TestRosters = pytest.mark.long(RosterMachine.TestCase)
TestRosters.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def full_store(number: int) -> tuple[Store[VirtualMachineInstance], VMIRosters]:
    vmis: Store[VirtualMachineInstance] = Store(indexes=VMI_INDEXES)
    stores.replace(vmis, [vmi(f"vm-{each}", owner=OWNERS[0], ready=True) for each in range(number)], "7")
    return vmis, VMIRosters(vmis)


def recorded_reads(vmis: Store[VirtualMachineInstance], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the VMIs that are read from the store one by one, from now on."""
    read: list[str] = []
    get = vmis.get
    monkeypatch.setattr(vmis, "get", lambda key: read.append(key.name) or get(key))
    return read


def test_all_members_of_a_very_large_set_are_read_in_slices_before_the_snapshot(monkeypatch):
    vmis, found = full_store(9)
    read = recorded_reads(vmis, monkeypatch)
    owner = OWNERS[0].metadata
    assert [len(read) for _ in found.prepare(owner)] == [2, 4, 6, 8]
    assert len(found.read(owner)) == 9
    assert len(read) == 9


def test_a_set_with_a_roster_prepares_only_its_changes(monkeypatch):
    vmis, found = full_store(9)
    owner = OWNERS[0].metadata
    found.read(owner)
    assert list(found.prepare(owner)) == []
    for number in range(5):
        vmis.apply(vmi(f"vm-{number}", owner=OWNERS[0], ready=False, version="9"))
    read = recorded_reads(vmis, monkeypatch)
    assert [len(read) for _ in found.prepare(owner)] == [2, 4]
    assert set(read) <= {f"vm-{number}" for number in range(5)}


def test_a_set_that_fits_into_one_slice_is_not_prepared():
    _, found = full_store(2)
    assert list(found.prepare(OWNERS[0].metadata)) == []
    assert len(found._rosters) == 0


def test_a_group_that_nobody_has_any_more_is_not_copied(monkeypatch):
    vmis, found = full_store(8)
    monkeypatch.setattr(Group, "take", lambda _: pytest.fail("a group is copied"))
    for each in range(3):
        members = found.read(OWNERS[0].metadata)
        assert (len(members), len(members.where(is_ready))) == (8, 8 - each)
        del members
        vmis.apply(vmi(f"vm-{each}", owner=OWNERS[0], ready=False, version="9"))


def test_another_thread_reads_a_group_while_the_roster_changes():
    """Each change replaces one of the VMIs. So a group that mixes two moments has VMIs of two versions."""
    vmis, found = full_store(500)
    wrong: list[set[str]] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as thread:
            for version in range(10, 30, 2):
                for each in range(500):
                    vmis.apply(vmi(f"vm-{each}", owner=OWNERS[0], version=str(version)))
                (group,) = found.read(OWNERS[0].metadata).groups
                for each in range(500):
                    vmis.apply(vmi(f"vm-{each}", owner=OWNERS[0], version=str(version + 1)))
                read = thread.submit(lambda group=group: {each.metadata.resource_version for each in group})
                found.read(OWNERS[0].metadata)
                wrong += [versions for versions in (read.result(),) if versions != {str(version)}]
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def test_one_change_reads_one_vmi(monkeypatch):
    vmis, found = full_store(100)
    found.read(OWNERS[0].metadata)
    read: list[str] = []
    monkeypatch.setattr(vmis, "by_index", lambda *_: pytest.fail("all VMIs are read"))
    get = vmis.get
    monkeypatch.setattr(vmis, "get", lambda key: read.append(key.name) or get(key))
    vmis.apply(vmi("vm-42", owner=OWNERS[0], ready=False, version="9"))
    assert len(found.read(OWNERS[0].metadata)) == 100
    assert read == ["vm-42"]


def test_a_small_set_has_no_roster():
    _, found = full_store(1)
    assert len(found.read(OWNERS[0].metadata)) == 1
    assert len(found._rosters) == 0


def test_a_deleted_set_has_no_roster():
    _, found = full_store(5)
    found.read(OWNERS[0].metadata)
    assert len(found._rosters) == 1
    found.forget(OWNERS[0].metadata.key)
    assert len(found._rosters) == 0
