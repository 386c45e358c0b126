"""P20, R4: the roster of a pool equals a full count of the stores, and a plan costs little for the largest number."""

import json
import sys
import tracemalloc
from collections.abc import Callable, Hashable, Mapping
from datetime import timedelta
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec.structs import replace

from controller.kubevirt.annotations import PARTITION, UNREADY
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.rosters import Downtimes, PoolReader, PoolRosters
from controller.pool.members.snapshot import VM_INDEXES
from controller.pool.members.traits import erase
from controller.pool.members.unready_periods import UnreadyPeriod
from controller.pool.plan import plan
from controller.pool.spec.partition import PartitionStep
from controller.pool.status import next_status
from controller.replicaset import plan as set_plan
from controller.replicaset import status as set_status
from controller.runtime.actions import Create
from controller.runtime.members.groups import grouped
from informers.meta import ObjectKey, ObjectMeta
from informers.store import Store
from tests import builders
from tests.builders import NOW
from tests.fakes import stores
from tests.pool_builders import pool, revision, situation_of, snapshot, vm, vm_spec, vmi, vms
from tests.pool_scenes import at
from tests.strategies import choice

OWNERS = (pool("one", uid="uid-1"), pool("two", uid="uid-2"))
NOTED = pool("one", uid="uid-1", annotations={UNREADY: json.dumps({each: ["uid-0", at(200)] for each in (0, 3, 5)})})
"""The first pool, with an annotation that has three unready periods."""

OWNER_WITH_NOTES = st.sampled_from([*OWNERS, OWNERS[0], NOTED, NOTED])


pytestmark = pytest.mark.usefixtures("small_rosters")


def contents(found: Machines) -> object:
    """The members of each group: the names and versions of the VMs, the versions of the VMIs, the unready periods."""
    groups: dict[Hashable, set[tuple[object, ...]]] = {}
    for group in found.groups:
        (traits,) = {erase(each) or each.metadata.name for each in group}
        assert traits not in groups
        groups[traits] = {(*versions_of(each), each.downtime) for each in group}
    return groups


def versions_of(each: Machine) -> tuple[str, str, str]:
    """The name and the version of the VM, and the version of its VMI."""
    vmi_version = each.vmi.metadata.resource_version if each.vmi is not None else ""
    return each.metadata.name, each.metadata.resource_version, vmi_version


class RosterMachine(RuleBasedStateMachine):
    """VMs and their VMIs are added, changed and removed, one by one or by a new list."""

    def __init__(self) -> None:
        super().__init__()
        self.vms: Store[VirtualMachine] = Store(indexes=VM_INDEXES)
        self.vmis: Store[VirtualMachineInstance] = Store()
        self.kept: dict[ObjectKey, Downtimes] = {}
        """The unready periods that the rosters keep."""
        self.rosters = PoolRosters(self.vms, self.vmis, self.kept)
        self.unready: dict[ObjectKey, Mapping[str, UnreadyPeriod]] = {}
        """The unready periods of each pool at its last reading, computed from all VMs."""
        self.earlier: list[tuple[Machines, object]] = []
        """Results that the test has not read yet, with their contents at that time. A result does not change."""
        self.now = NOW
        self.version = 0

    def draw_vm(self, data: st.DataObject) -> VirtualMachine:
        self.version += 1
        return vm(
            f"one-{data.draw(st.integers(0, 9))}",
            owner=data.draw(st.sampled_from([*OWNERS, OWNERS[0], OWNERS[0], None])),
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
            store.remove(data.draw(st.sampled_from(store.values())).metadata)

    @rule(data=st.data(), of_vms=st.booleans())
    def list_again(self, data, of_vms):
        store, draw = (self.vms, self.draw_vm) if of_vms else (self.vmis, self.draw_vmi)
        stores.replace(store, [*store.values()[::2], draw(data)], str(self.version))

    @rule(seconds=st.sampled_from([1, 29, 30, 300]))
    def wait(self, seconds):
        self.now += timedelta(seconds=seconds)

    def read_all(
        self, meta: ObjectMeta, before: Mapping[str, UnreadyPeriod]
    ) -> tuple[Machines, Mapping[str, UnreadyPeriod]]:
        """Read all members without a roster. Return them, and their unready periods."""
        reader = PoolReader(self.vms, self.vmis, meta, Downtimes(before), self.now, marks={})
        return grouped(reader.load(), erase), reader.downtimes.periods

    def periods_of(self, meta: ObjectMeta) -> Mapping[str, UnreadyPeriod]:
        """The unready periods that the rosters keep for this pool."""
        return dict(self.kept[meta.key].periods) if meta.key in self.kept else {}

    @rule(owner=OWNER_WITH_NOTES)
    def read(self, owner):
        meta = owner.metadata
        expected, unready = self.read_all(meta, self.unready.get(meta.key, {}))
        assert contents(self.rosters.read(meta, self.now, {})) == contents(expected)
        assert self.periods_of(meta) == unready
        self.unready[meta.key] = unready

    @rule(owner=st.sampled_from(OWNERS))
    def keep(self, owner):
        meta = owner.metadata
        expected, unready = self.read_all(meta, self.unready.get(meta.key, {}))
        self.earlier.append((self.rosters.read(meta, self.now, {}), contents(expected)))
        self.unready[meta.key] = unready

    @rule()
    def read_earlier_results(self):
        while self.earlier:
            found, expected = self.earlier.pop()
            assert contents(found) == expected

    @rule(owner=OWNER_WITH_NOTES, slices=st.integers(1, 9))
    def prepare(self, owner, slices):
        for _ in islice(self.rosters.prepare(owner.metadata, self.now, {}), slices):
            pass
        self.read(owner)

    @rule(data=st.data(), owner=st.sampled_from(OWNERS), of_vms=st.booleans())
    def prepare_while_the_members_change(self, data, owner, of_vms):
        acts = [lambda: self.apply(data, 1), lambda: self.remove(data, of_vms), lambda: self.list_again(data, of_vms)]
        meta = owner.metadata
        for _ in islice(self.rosters.prepare(meta, self.now, {}), 5):
            data.draw(st.sampled_from(acts))()
        found, (expected, _) = self.rosters.read(meta, self.now, {}), self.read_all(meta, {})
        assert set(map(versions_of, found)) == set(map(versions_of, expected))
        # A short readiness between two slices is part of a period, but a later reading does not see it.
        self.unready[meta.key] = self.periods_of(meta)

    @rule(owner=st.sampled_from(OWNERS))
    def forget(self, owner):
        self.rosters.forget(owner.metadata.key)
        self.unready.pop(owner.metadata.key, None)


TestRosters = RosterMachine.TestCase
TestRosters.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


LARGEST = 2**31 - 1
STEPS = "90%,50%:10m,0"


def cost_of(work: Callable[[], Any]) -> tuple[int, int]:
    """Return the number of function calls, and the largest memory in bytes, that the work needs."""
    calls = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    tracemalloc.start()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return calls, peak


@pytest.mark.parametrize("most", [0, 10_000])
@pytest.mark.parametrize("partition", ["1", STEPS, "100%"])
def test_p20_the_largest_number_of_replicas_costs_as_little_as_a_small_one(most: int, partition: str) -> None:
    owner = pool(replicas=LARGEST, annotations={PARTITION: partition})
    seen = snapshot(owner, vms(owner, 0, 1, 2), max_replicas=most)
    for work in (lambda: plan(seen), lambda: next_status(seen, ())):
        calls, peak = cost_of(work)
        assert calls < 200_000
        assert peak < 20_000_000


@pytest.mark.parametrize(("most", "wanted"), [(0, LARGEST), (5, 5), (2, 3)])
def test_p20_plan_and_status_agree_on_the_wanted_vms_and_their_partition(most: int, wanted: int) -> None:
    owner = pool(replicas=LARGEST, generation=2, annotations={PARTITION: STEPS})
    past = pool(spec=vm_spec(image="v0"), generation=1)
    members = vms(past, 0, 1, 2, revision="web-1")
    seen = snapshot(owner, members, revisions=[revision(past, "web-1")], max_replicas=most)
    target = situation_of(seen).target
    assert (target.wanted, target.replicas) == (wanted, LARGEST)
    todo = plan(seen)
    status = next_status(seen, (), todo.waits)
    creates = sum(isinstance(each, Create) and each.resource is VMS for each in todo.actions)
    assert creates == min(wanted - 3, 250)
    assert (status.printable_status == "Scaling") == (creates > 0)
    assert (f"spec.replicas is {LARGEST}" in todo.held) == (most > 0)
    stalled = [each.reason for each in status.conditions or () if each.type == "Stalled"]
    assert stalled == (["ReplicasLimited"] if 0 < most <= 3 else [])


def test_r4_plan_and_status_of_a_set_agree_on_the_wanted_vmis() -> None:
    owner = builders.replicaset(replicas=LARGEST)
    members = [builders.vmi(f"member-{number}", owner=owner) for number in range(3)]
    for most, creates, problem in ((0, 250, ""), (5, 2, ""), (3, 0, f"spec.replicas is {LARGEST}")):
        seen = replace(builders.snapshot(owner, members), max_replicas=most)
        made = [each for each in set_plan.plan(seen).actions if isinstance(each, Create) and "test" in each.key.name]
        assert len(made) == creates
        assert (set_status.next_status(seen, (), set_plan.plan(seen).waits).problem or "").startswith(problem)
        calls, peak = cost_of(lambda seen=seen: set_status.next_status(seen, ()))
        assert calls < 50_000
        assert peak < 5_000_000


@given(
    st.dictionaries(st.integers(0, 30), st.booleans(), max_size=12),
    st.sets(st.integers(0, 30), max_size=8),
    st.integers(0, 25),
    st.integers(0, 99),
)
def test_p14_a_percentage_of_missing_and_present_ordinals_needs_no_list_of_them(
    present: dict[int, bool], others: set[int], missing: int, percent: int
) -> None:
    outdated = sorted(each for each, is_outdated in present.items() if is_outdated)
    beside = sorted(others - present.keys())
    free = [*islice((each for each in count() if each not in present and each not in beside), missing)]
    step = PartitionStep(percent, is_percent=True)
    of_all = step.partition_of(sorted((*present, *free)), sorted((*outdated, *free)))
    assert step.partition_of(sorted(present), outdated, missing, beside) == of_all
