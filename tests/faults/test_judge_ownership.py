"""S4, S5, S7 and S8: for each invariant, histories that keep it and histories that break it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.faults.checks import RUN, assert_broken, assert_kept, pool_of, scale, set_of
from tests.faults.history import History
from tests.faults.judge import LeaseTimes, Run, examine
from tests.faults.made_history import (
    OURS,
    SIMULATOR,
    USER,
    Made,
    replica_set,
    set_revision_of,
    vm,
    vmi,
)
from tests.faults.states import POOL, REVISION, REVISION_LABEL, SET, VM, VMI, Object


def test_s4_a_delete_of_a_member_by_uid_is_right() -> None:
    made = Made()
    scale(made, set_of(made, 2), 1)
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "S4")


def test_s4_a_delete_without_the_uid_is_found() -> None:
    made = Made()
    set_of(made, 2)
    made.delete(VMI, "herd-a", by=OURS, uid="")
    assert_broken(made, "S4", "no UID as precondition")


def test_s4_a_delete_that_was_refused_before_its_body_was_read_is_not_judged() -> None:
    made = Made()
    set_of(made, 2)
    made.fail("delete", VMI, "herd-a", 403)
    assert_kept(made, "S4")


def test_s4_a_refused_delete_whose_body_has_no_uid_is_found() -> None:
    made = Made()
    set_of(made, 2)
    made.fail("delete", VMI, "herd-a", 409, body={"kind": "DeleteOptions"})
    assert_broken(made, "S4", "no UID as precondition")


def test_s4_a_delete_of_a_vmi_that_its_user_detached_is_found() -> None:
    made = Made()
    set_of(made, 2)
    made.patch(VMI, "herd-a", {"metadata": {"ownerReferences": None}})
    made.delete(VMI, "herd-a", by=OURS)
    assert_broken(made, "S4", "belongs to no owner")


def test_s4_the_owner_may_vanish_just_before_the_delete() -> None:
    made = Made()
    set_of(made, 2)
    made.delete(SET, "herd")
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "S4")
    made.wait(60)
    made.delete(VMI, "herd-b", by=OURS)
    assert_broken(made, "S4", "VirtualMachineInstance/herd-b belongs to no owner")


def test_s4_the_vmi_of_a_vm_belongs_to_the_pool() -> None:
    made = Made()
    pool_of(made, 1)
    made.create(vmi("pool-0", made.get(VM, "pool-0")), by=SIMULATOR)
    made.delete(VMI, "pool-0", by=OURS)
    assert_kept(made, "S4")


def test_s4_the_vmi_of_a_detached_vm_is_not_deleted() -> None:
    made = Made()
    pool_of(made, 1)
    made.create(vmi("pool-0", made.get(VM, "pool-0")), by=SIMULATOR)
    made.patch(VM, "pool-0", {"metadata": {"ownerReferences": None}})
    made.wait(60)
    made.delete(VMI, "pool-0", by=OURS)
    assert_broken(made, "S4", "belongs to no owner")


def test_s4_revisions_of_a_set_may_be_deleted_also_after_they_have_lost_their_owner() -> None:
    made = Made()
    owner = set_of(made, 1)
    for hashed in ("old", "older"):
        made.create(set_revision_of(owner, hashed), by=OURS)
    made.delete(REVISION, "herd-older", by=OURS)
    made.patch(REVISION, "herd-old", {"metadata": {"ownerReferences": None}})
    made.delete(SET, "herd")
    made.wait(60)
    made.delete(REVISION, "herd-old", by=OURS)
    assert_kept(made, "S4")


def test_s4_the_deletion_of_a_collection_is_found() -> None:
    made = Made()
    made.fail("deletecollection", VMI, "", 200)
    assert_broken(made, "S4", "a whole collection")


def adopt(made: Made, owner: Object, name: str, *, confirm: bool = True, body: object = None) -> None:
    if confirm:
        made.read(SET, owner["metadata"]["name"])
    reference = {"kind": SET, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True}
    made.patch(VMI, name, {"metadata": {"ownerReferences": [reference]}}, by=OURS, body=body)


def test_s5_an_orphan_is_adopted_after_the_owner_was_read() -> None:
    made = Made()
    owner = made.create(replica_set(1))
    made.create(vmi("orphan"))
    adopt(made, owner, "orphan")
    assert_kept(made, "S5")


def test_s5_an_owner_may_be_read_before_its_creator_gets_the_answer() -> None:
    made = Made()
    owner = made.create(replica_set(1))
    made.create(vmi("orphan"))
    adopt(made, owner, "orphan")
    create, read = made.requests[0], made.requests[2]
    made.requests[0] = replace(create, answered=read.answered + 0.005)
    assert_kept(made, "S5")
    made.requests[0] = replace(create, time=read.answered + 0.001, answered=read.answered + 0.005)
    assert_broken(made, "S5", "by an owner that leaves")


def test_s5_an_adoption_without_a_read_is_found() -> None:
    made = Made()
    owner = made.create(replica_set(1))
    made.create(vmi("orphan"))
    adopt(made, owner, "orphan", confirm=False)
    assert_broken(made, "S5", "was not read")


def test_s5_an_adoption_by_an_owner_that_is_being_deleted_is_found() -> None:
    made = Made()
    owner = made.create({**replica_set(1), "metadata": {"name": "herd", "finalizers": ["orphan"]}})
    made.create(vmi("orphan"))
    made.delete(SET, "herd")
    adopt(made, owner, "orphan")
    assert_broken(made, "S5", "by an owner that leaves")


def test_s5_an_adoption_of_the_vmi_of_another_controller_is_found() -> None:
    made = Made()
    owner, other = made.create(replica_set(1)), made.create(replica_set(1, "other"))
    made.create(vmi("orphan", other))
    adopt(made, owner, "orphan")
    assert_broken(made, "S5", "has a controller")


def test_s5_an_adoption_without_preconditions_is_found() -> None:
    made = Made()
    owner = made.create(replica_set(1))
    made.create(vmi("orphan"))
    adopt(made, owner, "orphan", body={"metadata": {}})
    assert_broken(made, "S5", "does not have the UID and the version")


def test_s5_an_adoption_against_the_selector_is_found() -> None:
    made = Made()
    owner = made.create(replica_set(1))
    made.create(vmi("orphan", labels={"app": "other"}))
    adopt(made, owner, "orphan")
    assert_broken(made, "S5", "labels do not match")


def test_s5_a_vmi_whose_labels_stopped_matching_is_released() -> None:
    made = Made()
    set_of(made, 1)
    made.patch(VMI, "herd-a", {"metadata": {"labels": {"app": "other"}}})
    made.patch(VMI, "herd-a", {"metadata": {"ownerReferences": None}}, by=OURS)
    assert_kept(made, "S5")


def test_s5_a_release_of_a_vmi_whose_labels_match_is_found() -> None:
    made = Made()
    set_of(made, 1)
    made.patch(VMI, "herd-a", {"metadata": {"ownerReferences": None}}, by=OURS)
    assert_broken(made, "S5", "its labels match")


def test_s5_a_release_without_the_uid_is_found() -> None:
    made = Made()
    set_of(made, 1)
    made.patch(VMI, "herd-a", {"metadata": {"labels": {"app": "other"}}})
    made.patch(VMI, "herd-a", {"metadata": {"ownerReferences": None}}, by=OURS, body={"metadata": {}})
    assert_broken(made, "S5", "has no UID")


def test_s7_a_paused_owner_writes_no_member() -> None:
    made = Made()
    owner = set_of(made, 2)
    made.patch(SET, "herd", {"spec": {"paused": True}})
    made.wait(60)
    made.patch(VMI, "herd-a", {"metadata": {"labels": {"app": "other"}}})
    made.patch(VMI, "herd-a", {"metadata": {"ownerReferences": None}}, by=OURS)
    assert_kept(made, "S7")
    made.create(vmi("herd-c", owner), by=OURS)
    assert_broken(made, "S7", "created during a pause")


def test_s7_a_delete_during_a_pause_is_found() -> None:
    made = Made()
    set_of(made, 2)
    made.patch(SET, "herd", {"spec": {"paused": True}})
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "S7")
    made.wait(60)
    made.delete(VMI, "herd-b", by=OURS)
    assert_broken(made, "S7", "deleted during a pause")


def test_s7_an_update_during_a_pause_is_found() -> None:
    made = Made()
    pool_of(made, 1, paused=True)
    made.wait(60)
    made.patch(VM, "pool-0", {"spec": {"runStrategy": "Manual"}}, by=OURS)
    assert_broken(made, "S7", "updated during a pause")


def restarting_pool(made: Made, **spec: Any) -> None:
    """A pool whose VM has a newer revision than its VMI."""
    pool_of(made, 1, **spec)
    made.create(vmi("pool-0", made.get(VM, "pool-0"), labels={REVISION_LABEL: "pool-0"}), by=SIMULATOR)
    made.wait(60)


def test_s1_an_outdated_vmi_may_be_restarted() -> None:
    made = Made()
    restarting_pool(made)
    made.delete(VMI, "pool-0", by=OURS)
    assert_kept(made, "S1")
    assert_kept(made, "S7")


def test_s1_a_restart_without_a_reason_is_found() -> None:
    made = Made()
    restarting_pool(made)
    made.patch(VMI, "pool-0", {"metadata": {"labels": {REVISION_LABEL: "pool-1"}}})
    made.delete(VMI, "pool-0", by=OURS)
    assert_broken(made, "S1", "its VMI has the revision of the VM")


@pytest.mark.parametrize("by_request", [True, False])
def test_s1_a_strategy_without_restarts_restarts_nothing(by_request: bool) -> None:
    made = Made()
    restarting_pool(made, updateStrategy={"opportunistic": {}})
    if by_request:
        made.fail("update", VM, "pool-0", 202, subresource="restart")
    else:
        made.delete(VMI, "pool-0", by=OURS)
    assert_broken(made, "S1", "the update strategy forbids restarts")


def test_s1_a_vm_is_not_restarted_during_a_snapshot() -> None:
    made = Made()
    restarting_pool(made)
    made.patch(VM, "pool-0", {"status": {"snapshotInProgress": "s"}}, by=SIMULATOR)
    made.wait(60)
    made.delete(VMI, "pool-0", by=OURS)
    assert_broken(made, "S1", "is restarted during a snapshot")


def test_s7_a_restart_during_a_pause_is_found() -> None:
    made = Made()
    restarting_pool(made, paused=True)
    made.delete(VMI, "pool-0", by=OURS)
    assert_broken(made, "S7", "is restarted during a pause")


def test_s7_a_create_for_an_owner_that_is_being_deleted_is_found() -> None:
    made = Made()
    owner = pool_of(made, 1)
    made.delete(POOL, "pool")
    made.wait(60)
    made.create(vm("pool-1", owner), by=OURS)
    assert_broken(made, "S7", "its owner is being deleted")


def test_s8_the_holder_of_the_lease_writes() -> None:
    made = Made()
    owner = made.create(replica_set(2))
    made.lease("one", credential="1")
    made.create(vmi("herd-a", owner), by=OURS, credential="1")
    made.wait(20)
    made.lease("two", credential="2")
    made.create(vmi("herd-b", owner), by=OURS, credential="2")
    assert_kept(made, "S8", Run(lease=LeaseTimes()))


def test_s8_a_write_after_the_end_of_the_lease_is_found() -> None:
    made = Made()
    owner = made.create(replica_set(2))
    made.lease("one", credential="1")
    made.wait(20)
    made.create(vmi("herd-a", owner), by=OURS, credential="1")
    assert_broken(made, "S8", "the lease is that of 'one'", Run(lease=LeaseTimes()))


def test_s8_a_write_of_a_controller_that_lost_the_lease_is_found() -> None:
    made = Made()
    owner = made.create(replica_set(2))
    made.lease("one", credential="1")
    made.wait(20)
    made.lease("two", credential="2")
    made.create(vmi("herd-a", owner), by=OURS, credential="1")
    assert_broken(made, "S8", "is sent by one", Run(lease=LeaseTimes()))


def test_a_history_without_the_controller_has_no_violations() -> None:
    assert not examine(History(()), RUN).violations
    made = Made()
    made.create(vmi("herd-x", made.create(replica_set(1))), by=USER)
    assert not examine(made.history(), RUN).violations
