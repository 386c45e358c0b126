"""R4, P20: the number of wanted members is computed in one place, with the limit of replicas and in few steps."""

import sys
import tracemalloc
from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import PARTITION
from controller.kubevirt.resources import VMS
from controller.pool.members.snapshot import Snapshot
from controller.pool.plan import plan
from controller.pool.spec.partition import PartitionStep
from controller.pool.status import next_status
from controller.replicaset import plan as set_plan
from controller.replicaset import status as set_status
from controller.runtime.actions import Create
from tests import builders
from tests.pool_builders import pool, revision, situation_of, snapshot, vm_spec, vms

LARGEST = 2**31 - 1
STEPS = "90%,50%:10m,0"


def limited(seen: Snapshot, most: int) -> Snapshot:
    return replace(seen, limits=replace(seen.limits, max_replicas=most))


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
    seen = limited(snapshot(owner, vms(owner, 0, 1, 2)), most)
    for work in (lambda: plan(seen), lambda: next_status(seen, ())):
        calls, peak = cost_of(work)
        assert calls < 200_000
        assert peak < 20_000_000


@pytest.mark.parametrize(("most", "wanted"), [(0, LARGEST), (5, 5), (2, 3)])
def test_p20_plan_and_status_agree_on_the_wanted_vms_and_their_partition(most: int, wanted: int) -> None:
    owner = pool(replicas=LARGEST, generation=2, annotations={PARTITION: STEPS})
    past = pool(spec=vm_spec(image="v0"), generation=1)
    members = vms(past, 0, 1, 2, revision="web-1")
    seen = limited(snapshot(owner, members, revisions=[revision(past, "web-1")]), most)
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
        assert (
            sum(isinstance(each, Create) for each in set_plan.plan(seen).actions if "test" in each.key.name) == creates
        )
        assert (set_status.next_status(seen, (), set_plan.plan(seen).waits).problem or "").startswith(problem)
        calls, peak = cost_of(lambda seen=seen: set_status.next_status(seen, ()))
        assert calls < 50_000
        assert peak < 5_000_000


@given(
    st.dictionaries(st.integers(0, 30), st.booleans(), max_size=12),
    st.integers(0, 25),
    st.integers(0, 99),
)
def test_p14_a_percentage_of_missing_and_present_ordinals_needs_no_list_of_them(
    present: dict[int, bool], missing: int, percent: int
) -> None:
    outdated = sorted(each for each, is_outdated in present.items() if is_outdated)
    free = [*islice((each for each in count() if each not in present), missing)]
    step = PartitionStep(percent, is_percent=True)
    of_all = step.partition_of(sorted((*present, *free)), sorted((*outdated, *free)))
    assert step.partition_of(sorted(present), outdated, missing) == of_all
