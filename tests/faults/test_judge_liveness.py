"""L1 to L6: for each invariant, histories that keep it and histories that break it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.checks import assert_broken, assert_kept, pool_of, scale, set_of
from tests.faults.end_states import compare, end_state
from tests.faults.judge import Interval, LeaseTimes, Run, examine
from tests.faults.made_history import OURS, SIMULATOR, Made, ready, replica_set, set_revision_of, vmi
from tests.faults.states import POOL, PROTECT, SET, VM, VMI, Object


def report(made: Made, kind: str, name: str, **status: Any) -> None:
    made.patch(kind, name, {"status": status}, by=OURS, subresource="status")


def reported_set(made: Made, replicas: int) -> Object:
    owner = set_of(made, replicas)
    report(made, SET, "herd", replicas=replicas, readyReplicas=replicas, labelSelector="app=herd", observedGeneration=1)
    return owner


def settled(made: Made, **more: Any) -> Run:
    return Run(settled_from=made.now, **more)


def test_l1_a_set_with_the_wanted_members_is_right() -> None:
    made = Made()
    reported_set(made, 2)
    assert_kept(made, "L1", settled(made))


@pytest.mark.parametrize("replicas", [1, 3])
def test_l1_a_wrong_number_of_members_is_found(replicas: int) -> None:
    made = Made()
    scale(made, reported_set(made, 2), replicas)
    assert_broken(made, "L1", f"has 2 members, {replicas} are wanted", settled(made))


@pytest.mark.parametrize("condition", ["ReplicaBackOff", "ReplicaFailure"])
def test_l1_a_reason_in_the_status_excuses_missing_members(condition: str) -> None:
    made = Made()
    scale(made, reported_set(made, 2), 3)
    report(made, SET, "herd", conditions=[{"type": condition, "status": "True"}])
    assert_kept(made, "L1", settled(made))


def test_l1_a_pause_and_a_protection_excuse_a_surplus() -> None:
    made = Made()
    scale(made, reported_set(made, 2), 1)
    made.patch(VMI, "herd-a", {"metadata": {"annotations": {PROTECT: "true"}}})
    pool_of(made, 1)
    made.patch(POOL, "pool", {"spec": {"replicas": 0, "paused": True}})
    assert_kept(made, "L1", settled(made))


def test_l1_an_opportunistic_pool_may_have_a_surplus_but_no_missing_member() -> None:
    made = Made()
    owner = pool_of(made, 2, scaleInStrategy={"opportunistic": {}})
    scale(made, owner, 1)
    assert_kept(made, "L1", settled(made))
    scale(made, owner, 3)
    assert_broken(made, "L1", "has 2 members, 3 are wanted", settled(made))


def test_l1_the_end_state_equals_the_reference() -> None:
    made, other = Made(), Made()
    reported_set(made, 2)
    other.revision = 100
    reported_set(other, 2)
    assert_kept(made, "L1", settled(made, reference=end_state(other.history())))


def test_l1_a_missing_revision_of_a_set_counts_only_if_its_template_is_in_use() -> None:
    made, other = Made(), Made()
    reported_set(made, 1)
    owner = reported_set(other, 1)
    other.create(set_revision_of(owner, "old"), by=OURS)
    assert_kept(made, "L1", settled(made, reference=end_state(other.history())))
    other.create(set_revision_of(owner, "h"), by=OURS)
    assert_broken(made, "L1", "/ControllerRevision/herd-h", settled(made, reference=end_state(other.history())))


def test_l1_an_end_state_that_differs_from_the_reference_is_found_unless_it_is_masked() -> None:
    made, other = Made(), Made()
    pool_of(made, 1)
    pool_of(other, 1)
    other.patch(VM, "pool-0", {"metadata": {"labels": {"more": "x"}}})
    reference = end_state(other.history())
    assert_broken(made, "L1", "/VirtualMachine/pool-0/labels/more", settled(made, reference=reference))
    mask = "/VirtualMachine/*/labels"
    assert_kept(made, "L1", settled(made, reference=reference, masks=(mask,)))
    assert compare(reference, end_state(made.history())) == ["/VirtualMachine/pool-0/labels/more"]


def test_l2_a_status_that_equals_the_recount_is_right() -> None:
    made = Made()
    reported_set(made, 2)
    report(made, SET, "herd", conditions=[{"type": "X", "status": "True", "lastTransitionTime": "1"}])
    assert_kept(made, "L2", settled(made))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"replicas": 3}, "replicas is 3, counted 2"),
        ({"readyReplicas": 1}, "readyReplicas is 1, counted 2"),
        ({"observedGeneration": 7}, "observedGeneration is 7"),
        ({"labelSelector": "app=other"}, "labelSelector is app=other"),
        ({"conditions": [{"type": "ReplicaPaused", "status": "True"}]}, "ReplicaPaused does not fit"),
    ],
)
def test_l2_a_wrong_status_is_found(status: dict[str, Any], text: str) -> None:
    made = Made()
    reported_set(made, 2)
    report(made, SET, "herd", **status)
    assert_broken(made, "L2", text, settled(made))


def test_l2_the_time_of_a_condition_that_stays_true_does_not_change() -> None:
    made = Made()
    reported_set(made, 1)
    for time in "12":
        report(made, SET, "herd", conditions=[{"type": "X", "status": "True", "lastTransitionTime": time}])
    assert_broken(made, "L2", "the time of the conditions ['X']")


def test_l3_a_lost_member_that_is_replaced_soon_is_right() -> None:
    made = Made()
    owner = reported_set(made, 2)
    made.delete(VMI, "herd-a")
    made.wait(3)
    made.create(vmi("herd-c", owner), by=OURS)
    made.wait(100)
    assert_kept(made, "L3", Run(ended=made.now))


def test_l3_a_lost_member_that_nobody_replaces_is_found() -> None:
    made = Made()
    reported_set(made, 2)
    made.delete(VMI, "herd-a")
    made.wait(100)
    assert_broken(made, "L3", "is not as wanted for 100.0 s", Run(ended=made.now))


def test_l3_a_status_that_nobody_corrects_is_found() -> None:
    made = Made()
    scale(made, reported_set(made, 2), 1)
    made.delete(VMI, "herd-a", by=OURS)
    made.wait(100)
    assert_broken(made, "L3", "is not as wanted", Run(ended=made.now))


def test_l3_the_time_of_a_fault_does_not_count() -> None:
    made = Made()
    owner = reported_set(made, 2)
    start = made.now
    made.delete(VMI, "herd-a")
    made.wait(100)
    fault = Interval(start, made.now)
    made.wait(3)
    made.create(vmi("herd-c", owner), by=OURS)
    assert_kept(made, "L3", Run(faults=(fault,), ended=made.now))
    assert_broken(made, "L3", "is not as wanted", Run(ended=made.now))


def crash_loop(made: Made, owner: Object, pause_s: float, number: int) -> None:
    for index in range(number):
        made.create(vmi(f"herd-{index}", owner), by=OURS)
        made.patch(VMI, f"herd-{index}", {"status": {"phase": "Failed"}}, by=SIMULATOR)
        made.wait(pause_s)


def test_l4_a_crash_loop_with_a_back_off_is_right() -> None:
    made = Made()
    crash_loop(made, made.create(replica_set(1)), 10, 30)
    assert_kept(made, "L4")


def test_l4_a_crash_loop_without_a_back_off_is_found() -> None:
    made = Made()
    crash_loop(made, made.create(replica_set(1)), 0.1, 30)
    assert_broken(made, "L4", "VMIs in a minute")


def test_l4_members_that_others_delete_may_be_replaced_at_once() -> None:
    made = Made()
    owner = made.create(replica_set(1))
    for index in range(30):
        made.create(vmi(f"herd-{index}", owner), by=OURS)
        made.patch(VMI, f"herd-{index}", ready(), by=SIMULATOR)
        made.delete(VMI, f"herd-{index}")
    assert_kept(made, "L4")


def test_l5_an_owner_is_repaired_after_a_fault() -> None:
    made = Made()
    owner = reported_set(made, 2)
    made.delete(VMI, "herd-a")
    fault = Interval(made.now - 1, made.now)
    made.wait(2)
    made.create(vmi("herd-c", owner), by=OURS)
    assert_kept(made, "L5", Run(faults=(fault,), ended=made.now + 100))


def test_l5_an_owner_that_stays_broken_after_a_fault_is_found() -> None:
    made = Made()
    reported_set(made, 2)
    made.delete(VMI, "herd-a")
    fault = Interval(made.now - 1, made.now)
    assert_broken(made, "L5", "is not repaired 30 s after a fault", Run(faults=(fault,), ended=made.now + 100))


def leases(made: Made, pause_s: float, *, released: bool) -> None:
    made.lease("one", credential="1")
    if released:
        made.lease("", credential="1")
    made.wait(pause_s)
    made.lease("two", credential="2")


@pytest.mark.parametrize(("pause_s", "released"), [(3, True), (17, False)])
def test_l6_a_lease_gets_a_new_holder(pause_s: float, released: bool) -> None:
    made = Made()
    leases(made, pause_s, released=released)
    assert_kept(made, "L6", Run(lease=LeaseTimes()))


@pytest.mark.parametrize(("pause_s", "released"), [(10, True), (30, False)])
def test_l6_a_lease_without_a_holder_is_found(pause_s: float, released: bool) -> None:
    made = Made()
    leases(made, pause_s, released=released)
    assert_broken(made, "L6", "two acquires the lease", Run(lease=LeaseTimes()))


def test_without_the_wait_for_rest_the_end_of_a_run_is_not_judged() -> None:
    made = Made()
    scale(made, reported_set(made, 2), 3)
    assert not examine(made.history(), Run(), only={"L1", "L2"}).violations
