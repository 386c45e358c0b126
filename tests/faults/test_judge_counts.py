"""H0 and S1 to S3: for each invariant, histories that keep it and histories that break it."""

from __future__ import annotations

from tests.faults.checks import assert_broken, assert_kept, pool_of, scale, set_of
from tests.faults.judge import Interval, Run
from tests.faults.made_history import (
    OURS,
    SIMULATOR,
    Made,
    pool,
    ready,
    replica_set,
    vm,
    vmi,
)
from tests.faults.states import POOL, REPLACE_UNREADY, SET, VM, VMI


def test_h0_a_complete_history_has_the_effect_of_each_write() -> None:
    made = Made()
    set_of(made, 2)
    made.delete(VMI, "herd-a")
    assert_kept(made, "H0")


def test_h0_a_state_that_the_observer_missed_is_found() -> None:
    made = Made()
    set_of(made, 2)
    made.observations.pop(2)
    assert_broken(made, "H0", "did not see the effect")


def test_h0_a_removal_that_the_observer_missed_is_found() -> None:
    made = Made()
    set_of(made, 1)
    made.delete(VMI, "herd-a")
    made.observations.pop()
    assert_broken(made, "H0", "did not see the removal")


def test_h0_an_audit_log_without_answers_is_no_history() -> None:
    made = Made()
    made.create(replica_set(0), answer=None)
    assert_broken(made, "H0", "needs RequestResponse")


def test_s1_a_set_that_creates_what_is_missing_is_right() -> None:
    made = Made()
    set_of(made, 3)
    assert_kept(made, "S1")


def test_s1_one_create_too_many_for_a_constant_number_is_found() -> None:
    made = Made()
    owner = set_of(made, 3)
    made.create(vmi("herd-d", owner), by=OURS)
    made.delete(VMI, "herd-d", by=OURS)
    assert_broken(made, "S1", "lacks 3 members: 4 creates, 1 deletes")


def test_s1_one_create_too_many_for_a_pool_with_a_constant_number_is_found() -> None:
    made = Made()
    owner = pool_of(made, 2)
    assert_kept(made, "S1")
    made.create(vm("pool-2", owner), by=OURS)
    assert_broken(made, "S1", "lacks 2 members: 3 creates, 0 deletes")


def test_s1_a_delete_of_a_surplus_member_has_a_reason() -> None:
    made = Made()
    scale(made, set_of(made, 3), 2)
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "S1")


def test_s1_a_delete_without_a_reason_is_found() -> None:
    made = Made()
    owner = set_of(made, 2)
    made.create(vmi("herd-x", owner))  # so that the count of S1 does not apply
    made.delete(VMI, "herd-x")
    made.wait(60)
    made.delete(VMI, "herd-a", by=OURS)
    assert_broken(made, "S1", "without a reason")


def test_s1_a_finished_vmi_may_be_deleted() -> None:
    made = Made()
    owner = set_of(made, 1)
    made.patch(VMI, "herd-a", {"status": {"phase": "Failed"}}, by=SIMULATOR)
    made.create(vmi("herd-b", owner), by=OURS)
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "S1")


def test_s1_an_unready_vmi_may_be_replaced_if_the_set_asks_for_it() -> None:
    made = Made()
    set_of(made, 1, annotations={REPLACE_UNREADY: "5"})
    made.patch(VMI, "herd-a", ready(False), by=SIMULATOR)
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "S1")


def test_s1_a_pool_that_may_not_delete_deletes_nothing() -> None:
    made = Made()
    owner = pool_of(made, 2, scaleInStrategy={"opportunistic": {}})
    scale(made, owner, 1)
    made.delete(VM, "pool-0", by=OURS)
    assert_broken(made, "S1", "forbids deletions")


def test_s2_creates_up_to_the_wanted_number_are_right() -> None:
    made = Made()
    scale(made, set_of(made, 2), 4)
    owner = made.get(SET, "herd")
    made.create(vmi("herd-c", owner), by=OURS)
    made.create(vmi("herd-d", owner), by=OURS)
    assert_kept(made, "S2")


def test_s2_a_surplus_create_is_found() -> None:
    made = Made()
    made.create(vmi("herd-c", set_of(made, 2)), by=OURS)
    assert_broken(made, "S2", "3 of 2 wanted")


def test_s2_a_create_for_the_number_that_was_wanted_a_moment_ago_is_right() -> None:
    made = Made()
    owner = set_of(made, 2)
    scale(made, owner, 3)
    scale(made, owner, 2)
    made.create(vmi("herd-c", owner), by=OURS)
    assert_kept(made, "S2")


def test_s2_a_create_for_a_number_of_long_ago_is_found_unless_a_fault_hid_the_change() -> None:
    made = Made()
    owner = set_of(made, 2)
    scale(made, owner, 3)
    start = made.now
    scale(made, owner, 2)
    made.wait(60)
    made.create(vmi("herd-c", owner), by=OURS)
    assert_broken(made, "S2", "3 of 2 wanted")
    assert_kept(made, "S2", Run(faults=(Interval(start, made.now),)))


def test_s2_two_replacements_of_one_lost_vmi_are_found() -> None:
    made = Made()
    owner = set_of(made, 2)
    made.delete(VMI, "herd-a")
    made.create(vmi("herd-c", owner), by=OURS)
    made.create(vmi("herd-d", owner), by=OURS)
    assert_broken(made, "S2", "3 of 2 wanted")


def test_s2_a_scale_in_below_the_wanted_number_is_found() -> None:
    made = Made()
    owner = set_of(made, 4)
    scale(made, owner, 2)
    made.delete(VMI, "herd-a", by=OURS)
    made.delete(VMI, "herd-b", by=OURS)
    assert_kept(made, "S2")
    made.delete(VMI, "herd-c", by=OURS)
    assert_broken(made, "S2", "leaves 1 members, 2 are wanted")


def test_s2_terminating_vms_of_a_pool_count_as_gone_for_its_scale_in() -> None:
    made = Made()
    owner = pool_of(made, 3)
    made.delete(VM, "pool-2")
    made.wait(60)
    scale(made, owner, 2)
    made.delete(VM, "pool-1", by=OURS)
    assert_broken(made, "S2", "leaves 1 members")


def test_s3_ordinals_fill_the_gaps() -> None:
    made = Made()
    owner = pool_of(made, 3)
    made.delete(VM, "pool-1")
    made.patch(VM, "pool-1", {"metadata": {"finalizers": None}}, by=OURS)
    made.create(vm("pool-1", owner), by=OURS)
    assert_kept(made, "S3")


def test_s3_a_gap_that_is_not_filled_is_found() -> None:
    made = Made()
    owner = pool_of(made, 3)
    made.delete(VM, "pool-1")
    made.patch(VM, "pool-1", {"metadata": {"finalizers": None}}, by=OURS)
    made.wait(60)
    made.create(vm("pool-3", owner), by=OURS)
    assert_broken(made, "S3", "the ordinals [1] are free")


def test_s3_a_vm_with_another_name_is_found() -> None:
    made = Made()
    made.create(vm("pool-01", made.create(pool(1))), by=OURS)
    assert_broken(made, "S3", "is no name of pool")


def test_s3_the_adoption_of_a_vm_is_found() -> None:
    made = Made()
    owner = made.create(pool(1))
    orphan = made.create(vm("pool-0"))
    reference = {"kind": POOL, "name": "pool", "uid": owner["metadata"]["uid"], "controller": True}
    made.patch(VM, orphan["metadata"]["name"], {"metadata": {"ownerReferences": [reference]}}, by=OURS)
    assert_broken(made, "S3", "adopts pool-0")
