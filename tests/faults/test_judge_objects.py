"""S6 and S9: for each invariant, histories that keep it and histories that break it."""

from __future__ import annotations

import copy
from typing import Any

from tests.faults.checks import RUN, assert_broken, assert_kept, pool_of, scale, set_of
from tests.faults.judge import Run, examine
from tests.faults.made_history import (
    OURS,
    SIMULATOR,
    Made,
    disk,
    pool,
    ready,
    replica_set,
    revision_of,
    set_revision_of,
    vmi,
)
from tests.faults.states import (
    DATA_VOLUME,
    FINALIZER,
    POOL,
    REVISION,
    REVISION_LABEL,
    ROLLING_UPDATE,
    SET,
    VM,
    VMI,
)

KEEP: dict[str, Any] = {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}
WITHOUT: dict[str, Any] = {"metadata": {"finalizers": None}}
BIGGER: dict[str, Any] = {
    "spec": {"virtualMachineTemplate": {"spec": {"template": {"spec": {"domain": {"memory": 2}}}}}}
}


def settled(made: Made) -> Run:
    return Run(settled_from=made.now)


def guarded_body(made: Made, kind: str, name: str, *more: str) -> list[dict[str, Any]]:
    """The body of a JSON patch that tests the UID and these paths."""
    uid = made.get(kind, name)["metadata"]["uid"]
    return [{"op": "test", "path": path, "value": uid} for path in ("/metadata/uid", *more)]


def test_s6_the_finalizer_of_a_terminating_vm_is_removed() -> None:
    made = Made()
    pool_of(made, 1)
    made.delete(VM, "pool-0")
    body = guarded_body(made, VM, "pool-0", "/metadata/finalizers/0")
    made.patch(VM, "pool-0", WITHOUT, by=OURS, body=body)
    assert_kept(made, "S6", settled(made))


def test_s6_a_member_whose_disks_must_be_kept_keeps_its_finalizer() -> None:
    made = Made()
    pool_of(made, 1, **KEEP)
    made.patch(VM, "pool-0", WITHOUT, by=OURS)
    assert_broken(made, "S6", "is a member whose disks must be kept")


def test_s6_a_member_whose_pool_keeps_no_disks_loses_the_finalizer() -> None:
    made = Made()
    pool_of(made, 1)
    assert_broken(made, "S6", "its pool keeps no disks", settled(made))
    body = guarded_body(made, VM, "pool-0", "/metadata/finalizers/0")
    made.patch(VM, "pool-0", WITHOUT, by=OURS, body=body)
    assert_kept(made, "S6", settled(made))


def test_s6_at_rest_a_member_whose_disks_must_be_kept_has_the_finalizer() -> None:
    made = Made()
    pool_of(made, 1, **KEEP)
    assert_kept(made, "S6", settled(made))
    made.patch(VM, "pool-0", WITHOUT)
    assert_broken(made, "S6", "has no pool finalizer", settled(made))


def test_s6_the_finalizers_of_others_stay() -> None:
    made = Made()
    pool_of(made, 1)
    made.patch(VM, "pool-0", {"metadata": {"finalizers": ["x/y", FINALIZER]}})
    made.delete(VM, "pool-0")
    made.patch(VM, "pool-0", {"metadata": {"finalizers": [FINALIZER]}}, by=OURS)
    assert_broken(made, "S6", "the finalizers of others")


def test_s6_a_finalizer_that_the_server_lost_is_not_the_controllers_fault() -> None:
    """The server applies the patch to a state without the foreign finalizer, and then removes the object."""
    made = Made()
    pool_of(made, 1)
    made.delete(VM, "pool-0")
    patched = copy.deepcopy(made.get(VM, "pool-0"))
    made.patch(VM, "pool-0", {"metadata": {"finalizers": [FINALIZER, "orphan"]}})
    body = guarded_body(made, VM, "pool-0", "/metadata/finalizers/0")
    del patched["metadata"]["finalizers"]
    made.patch(VM, "pool-0", WITHOUT, by=OURS, body=body, answer=patched)
    assert_kept(made, "S6")
    newer = made.requests[-1].answer
    assert newer is not None
    newer["metadata"]["resourceVersion"] = str(made.revision - 1)
    assert_broken(made, "S6", "the finalizers of others on pool-0 change from ['orphan'] to []")


def test_s6_a_change_of_finalizers_needs_a_precondition() -> None:
    made = Made()
    pool_of(made, 1)
    made.delete(VM, "pool-0")
    made.patch(VM, "pool-0", WITHOUT, by=OURS, body={"metadata": {"finalizers": []}})
    assert_broken(made, "S6", "without a precondition")


def test_s6_a_pool_keeps_its_finalizer_while_a_vm_has_it() -> None:
    made = Made()
    pool_of(made, 1)
    made.delete(POOL, "pool")
    made.patch(POOL, "pool", WITHOUT, by=OURS)
    assert_broken(made, "S6", "before its VMs ['pool-0']")


def test_s6_a_pool_that_is_not_being_deleted_keeps_its_finalizer() -> None:
    made = Made()
    made.create(pool(0))
    made.patch(POOL, "pool", WITHOUT, by=OURS)
    assert_broken(made, "S6", "is not being deleted")


def test_s6_a_vm_keeps_the_finalizer_until_its_disks_are_free() -> None:
    made = Made()
    pool_of(made, 1, **KEEP)
    made.create(disk(DATA_VOLUME, "d-0", made.get(VM, "pool-0")), by=SIMULATOR)
    made.delete(VM, "pool-0")
    made.patch(VM, "pool-0", WITHOUT, by=OURS)
    assert_broken(made, "S6", "still owns its disks ['d-0']")


def test_s6_at_rest_no_terminating_vm_has_the_finalizer() -> None:
    made = Made()
    pool_of(made, 1)
    made.delete(VM, "pool-0")
    assert_broken(made, "S6", "terminates with", settled(made))


def test_s6_at_rest_no_former_member_has_the_finalizer() -> None:
    made = Made()
    pool_of(made, 1)
    made.patch(VM, "pool-0", {"metadata": {"ownerReferences": None}})
    assert_broken(made, "S6", "is no member and has", settled(made))


def pool_with_vmis(made: Made, replicas: int, **more: Any) -> dict[str, Any]:
    owner = pool_of(made, replicas, **more)
    for number in range(replicas):
        name = f"pool-{number}"
        made.create(vmi(name, made.get(VM, name), labels={REVISION_LABEL: "pool-1"}), by=SIMULATOR)
        made.patch(VMI, name, ready(), by=SIMULATOR)
    return owner


def test_s9_a_pool_restarts_as_many_vmis_as_may_be_unavailable() -> None:
    made = Made()
    pool_with_vmis(made, 3, maxUnavailable=1)
    made.delete(VMI, "pool-0", by=OURS)
    assert_kept(made, "S9")
    made.delete(VMI, "pool-1", by=OURS)
    assert_broken(made, "S9", "makes 2 members unavailable, 1 are allowed")


def test_s9_a_vmi_that_is_already_unready_is_free() -> None:
    made = Made()
    pool_with_vmis(made, 3, maxUnavailable=1)
    for number in range(2):
        made.patch(VMI, f"pool-{number}", ready(False), by=SIMULATOR)
    made.wait(60)
    made.delete(VMI, "pool-0", by=OURS)
    made.delete(VMI, "pool-1", by=OURS)
    assert_kept(made, "S9")
    made.delete(VMI, "pool-2", by=OURS)
    assert_broken(made, "S9", "makes 3 members unavailable")


def test_s9_a_failure_that_the_cache_may_not_show_yet_is_not_held_against_the_pool() -> None:
    made = Made()
    pool_with_vmis(made, 2, maxUnavailable=1)
    made.patch(VMI, "pool-0", ready(False), by=SIMULATOR)
    made.delete(VMI, "pool-1", by=OURS)
    assert_kept(made, "S9")


def test_s9_a_rolling_update_of_a_set_has_the_same_limit() -> None:
    made = Made()
    set_of(made, 3, annotations={ROLLING_UPDATE: "maxUnavailable=1"})
    made.wait(60)
    made.patch(SET, "herd", {"spec": {"template": {"spec": {"domain": {"memory": 2}}}}})
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "S9")
    made.delete(VMI, "herd-b", by=OURS)
    assert_broken(made, "S9", "makes 2 members unavailable, 1 are allowed")


def test_s9_a_revision_in_use_is_not_deleted() -> None:
    made = Made()
    pool_of(made, 1)
    made.delete(REVISION, "pool-1", by=OURS)
    assert_broken(made, "S9", "['VirtualMachine/pool-0'] refer to it")


def test_s9_a_revision_that_only_a_vmi_uses_is_not_deleted() -> None:
    made = Made()
    pool_with_vmis(made, 1)
    made.patch(VM, "pool-0", {"metadata": {"labels": {REVISION_LABEL: "pool-2"}}})
    made.delete(REVISION, "pool-1", by=OURS)
    assert_broken(made, "S9", "['VirtualMachineInstance/pool-0'] refer to it")


def test_s9_an_unused_revision_may_be_deleted() -> None:
    made = Made()
    owner = pool_of(made, 1)
    made.create(revision_of(owner, "pool-9"), by=OURS)
    made.delete(REVISION, "pool-9", by=OURS)
    assert_kept(made, "S9")


def test_s9_a_revision_with_other_data_than_the_pool_is_found() -> None:
    made = Made()
    owner = made.create(pool(1))
    made.create({**revision_of(owner), "data": {"replicas": 7}}, by=OURS)
    assert_broken(made, "S9", "is not the spec of generation 1")


def test_s9_the_revision_of_a_set_in_use_is_not_deleted() -> None:
    made = Made()
    owner = set_of(made, 1)
    for hashed in ("h", "old"):
        made.create(set_revision_of(owner, hashed), by=OURS)
    made.delete(REVISION, "herd-old", by=OURS)
    assert_kept(made, "S9")
    made.delete(REVISION, "herd-h", by=OURS)
    assert_broken(made, "S9", "['VirtualMachineInstance/herd-a'] refer to it")


def test_s9_a_revision_with_another_template_than_the_set_is_found() -> None:
    made = Made()
    owner = made.create(replica_set(1))
    made.create({**set_revision_of(owner, "h"), "data": {"template": {"spec": 7}}}, by=OURS)
    assert_broken(made, "S9", "is not the spec of generation 1")


def test_s9_a_changed_revision_is_found() -> None:
    made = Made()
    pool_of(made, 1)
    made.patch(REVISION, "pool-1", {"data": {"replicas": 7}}, by=OURS)
    assert_broken(made, "S9", "is changed")


def test_s9_the_scale_in_of_a_set_is_no_disruption() -> None:
    made = Made()
    owner = set_of(made, 3, annotations={ROLLING_UPDATE: "maxUnavailable=1"})
    scale(made, owner, 0)
    for letter in "abc":
        made.delete(VMI, f"herd-{letter}", by=OURS)
    assert not examine(made.history(), RUN, only={"S9"}).violations
