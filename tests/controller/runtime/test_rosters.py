"""What the rosters of sets read from the store. The test of a pool's rosters shows that they equal a full count."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_ready
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.snapshot import VMI_INDEXES
from controller.runtime.members.groups import Group
from informers.store import Store
from tests.builders import replicaset, vmi
from tests.fakes import stores

OWNER = replicaset("one", uid="uid-1")


pytestmark = pytest.mark.usefixtures("small_rosters")


def full_store(number: int) -> tuple[Store[VirtualMachineInstance], VMIRosters]:
    vmis: Store[VirtualMachineInstance] = Store(indexes=VMI_INDEXES)
    stores.replace(vmis, [vmi(f"vm-{each}", owner=OWNER, ready=True) for each in range(number)], "7")
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
    owner = OWNER.metadata
    assert [len(read) for _ in found.prepare(owner, {})] == [2, 4, 6, 8]
    assert len(found.read(owner, {})) == 9
    assert len(read) == 9


def test_a_set_with_a_roster_prepares_only_its_changes(monkeypatch):
    vmis, found = full_store(9)
    owner = OWNER.metadata
    found.read(owner, {})
    assert list(found.prepare(owner, {})) == []
    for number in range(5):
        vmis.apply(vmi(f"vm-{number}", owner=OWNER, ready=False, version="9"))
    read = recorded_reads(vmis, monkeypatch)
    assert [len(read) for _ in found.prepare(owner, {})] == [2, 4]
    assert set(read) <= {f"vm-{number}" for number in range(5)}


def test_a_set_that_fits_into_one_slice_is_not_prepared():
    _, found = full_store(2)
    assert list(found.prepare(OWNER.metadata, {})) == []
    assert len(found._rosters._rosters) == 0


def test_a_snapshot_does_not_change_with_the_roster():
    vmis, found = full_store(8)
    before = found.read(OWNER.metadata, {})
    shown = set(map(id, vmis.values()))
    for each in range(0, 8, 2):
        vmis.apply(vmi(f"vm-{each}", owner=OWNER, ready=False, version="9"))
    vmis.remove(vmi("vm-1", version="9").metadata)
    after = found.read(OWNER.metadata, {})
    assert [set(map(id, group)) for group in before.groups] == [shown]
    assert sorted(len(group) for group in after.groups) == [3, 4]


def test_a_group_that_nobody_has_any_more_is_not_copied(monkeypatch):
    vmis, found = full_store(8)
    monkeypatch.setattr(Group, "take", lambda _: pytest.fail("a group is copied"))
    for each in range(3):
        members = found.read(OWNER.metadata, {})
        assert (len(members), len(members.where(is_ready))) == (8, 8 - each)
        del members
        vmis.apply(vmi(f"vm-{each}", owner=OWNER, ready=False, version="9"))


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
                    vmis.apply(vmi(f"vm-{each}", owner=OWNER, version=str(version)))
                (group,) = found.read(OWNER.metadata, {}).groups
                for each in range(500):
                    vmis.apply(vmi(f"vm-{each}", owner=OWNER, version=str(version + 1)))
                read = thread.submit(lambda group=group: {each.metadata.resource_version for each in group})
                found.read(OWNER.metadata, {})
                wrong += [versions for versions in (read.result(),) if versions != {str(version)}]
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def test_a_deleted_set_has_no_roster():
    _, found = full_store(5)
    found.read(OWNER.metadata, {})
    assert len(found._rosters._rosters) == 1
    found.forget(OWNER.metadata.key)
    assert len(found._rosters._rosters) == 0
