"""S10 to S12: for each invariant, histories that keep it and histories that break it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.faults.checks import assert_broken, assert_kept, pool_of, set_of
from tests.faults.made_history import (
    COLLECTOR,
    OURS,
    SIMULATOR,
    Made,
    disk,
    pool,
    replica_set,
    revision_of,
    vm,
    vmi,
)
from tests.faults.states import (
    DATA_VOLUME,
    FINALIZER,
    POOL,
    PVC,
    REVISION,
    REVISION_LABEL,
    SET,
    VM,
    VMI,
)

KEEP: dict[str, Any] = {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}
WITHOUT: dict[str, Any] = {"metadata": {"finalizers": None}}
BIGGER: dict[str, Any] = {
    "spec": {"virtualMachineTemplate": {"spec": {"template": {"spec": {"domain": {"memory": 2}}}}}}
}


def pool_with_disk(made: Made, **more: Any) -> None:
    pool_of(made, 1, **more)
    template = {"spec": {"dataVolumeTemplates": [{"metadata": {"name": "d-0"}}]}}
    made.patch(VM, "pool-0", template)
    volume = made.create(disk(DATA_VOLUME, "d-0", made.get(VM, "pool-0")), by=SIMULATOR)
    made.create(disk(PVC, "d-0", volume), by=SIMULATOR)


def remove_vm(made: Made) -> None:
    made.delete(VM, "pool-0")
    made.patch(VM, "pool-0", WITHOUT, by=OURS)


def test_s10_a_kept_disk_outlives_its_vm() -> None:
    made = Made()
    pool_with_disk(made, **KEEP)
    made.delete(VM, "pool-0")
    made.patch(DATA_VOLUME, "d-0", {"metadata": {"ownerReferences": None}}, by=OURS)
    made.patch(VM, "pool-0", WITHOUT, by=OURS)
    assert_kept(made, "S10")


@pytest.mark.parametrize("kind", [DATA_VOLUME, PVC])
def test_s10_the_loss_of_a_disk_that_had_to_be_kept_is_found(kind: str) -> None:
    made = Made()
    pool_with_disk(made, **KEEP)
    remove_vm(made)
    made.delete(kind, "d-0", by=COLLECTOR)
    assert_broken(made, "S10", "the garbage collector deletes the disk d-0")


def test_s10_without_state_preservation_the_disks_go() -> None:
    made = Made()
    pool_with_disk(made)
    remove_vm(made)
    made.delete(DATA_VOLUME, "d-0", by=COLLECTOR)
    assert_kept(made, "S10")


def test_s10_a_deletion_in_the_foreground_takes_the_disks() -> None:
    made = Made()
    pool_with_disk(made, **KEEP)
    made.patch(VM, "pool-0", {"metadata": {"finalizers": [FINALIZER, "foregroundDeletion"]}})
    made.delete(VM, "pool-0")
    made.delete(DATA_VOLUME, "d-0", by=COLLECTOR)
    assert_kept(made, "S10")


def test_s10_a_user_who_removes_the_finalizer_loses_the_disks() -> None:
    made = Made()
    pool_with_disk(made, **KEEP)
    made.delete(VM, "pool-0")
    made.patch(VM, "pool-0", WITHOUT)
    made.delete(DATA_VOLUME, "d-0", by=COLLECTOR)
    assert_kept(made, "S10")


def unprotected_vm_with_disk(made: Made) -> None:
    """A VM without the pool finalizer, and its disk. The pool keeps disks."""
    owner = made.create(pool(1, **KEEP))
    machine = made.create(vm("pool-0", owner, finalizers=[]), by=OURS)
    made.create(disk(DATA_VOLUME, "d-0", machine), by=SIMULATOR)


def test_s10_a_user_who_deletes_a_vm_that_has_no_finalizer_yet_loses_the_disks() -> None:
    made = Made()
    unprotected_vm_with_disk(made)
    made.delete(VM, "pool-0")
    made.delete(DATA_VOLUME, "d-0", by=COLLECTOR)
    assert_kept(made, "S10")


def test_s10_a_delete_by_the_controller_without_the_finalizer_is_found() -> None:
    made = Made()
    unprotected_vm_with_disk(made)
    made.delete(VM, "pool-0", by=OURS)
    made.delete(DATA_VOLUME, "d-0", by=COLLECTOR)
    assert_broken(made, "S10", "the garbage collector deletes the disk d-0")


def test_s10_a_disk_that_the_controller_deletes_is_found() -> None:
    made = Made()
    pool_with_disk(made)
    made.delete(PVC, "d-0", by=OURS)
    assert_broken(made, "S10", "the controller deletes the disk")


def test_s10_a_new_vm_does_not_take_the_disk_of_its_predecessor() -> None:
    made = Made()
    pool_with_disk(made)
    remove_vm(made)
    successor = vm("pool-0", made.get(POOL, "pool"))
    successor["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "d-0"}}]
    made.create(successor, by=OURS)
    assert_broken(made, "S10", "still belongs to its predecessor")


def test_s11_own_fields_may_be_written() -> None:
    made = Made()
    pool_of(made, 1)
    set_of(made, 1)
    made.patch(SET, "herd", {"status": {"replicas": 1}}, by=OURS, subresource="status")
    made.patch(POOL, "pool", {"metadata": {"annotations": {"vmherd.dev/healed": "0"}}}, by=OURS)
    made.patch(VMI, "herd-a", {"metadata": {"ownerReferences": None}}, by=OURS)
    assert_kept(made, "S11")


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (SET, "herd", {"spec": {"replicas": 9}}),
        (SET, "herd", {"metadata": {"annotations": {"vmherd.dev/x": "y"}}}),
        (POOL, "pool", {"spec": {"replicas": 9}}),
        (POOL, "pool", {"metadata": {"annotations": {"x": "y"}}}),
        (VMI, "herd-a", {"metadata": {"labels": {"x": "y"}}}),
        (VMI, "herd-a", {"status": {"phase": "Failed"}}),
        (VM, "pool-0", {"status": {"ready": True}}),
        (REVISION, "pool-1", {"data": {}, "revision": 4}),
    ],
)
def test_s11_a_field_of_another_writer_is_found(kind: str, name: str, change: dict[str, Any]) -> None:
    made = Made()
    pool_of(made, 1)
    set_of(made, 1)
    made.patch(kind, name, change, by=OURS)
    assert_broken(made, "S11", "changes ['/")


def test_s11_a_pool_of_the_same_name_has_its_own_revisions() -> None:
    """Both pools have a revision `pool-1`. A VM is compared with the revision of its own pool."""
    made = Made()
    pool_of(made, 1)
    for kind, name in ((VM, "pool-0"), (POOL, "pool")):
        made.delete(kind, name)
        made.patch(kind, name, WITHOUT, by=OURS)
    made.delete(REVISION, "pool-1")
    owner = pool(1)
    owner["spec"]["virtualMachineTemplate"]["metadata"]["labels"]["new"] = "yes"
    owner = made.create(owner)
    made.create(revision_of(owner), by=OURS)
    made.create(vm("pool-0", owner, labels={"new": "yes"}), by=OURS)
    assert_kept(made, "S11")
    made.create(vm("pool-1", owner), by=OURS)
    assert_broken(made, "S11", "pool-1 differs from its template")


def test_s11_a_status_patch_changes_only_the_status() -> None:
    made = Made()
    pool_of(made, 1)
    made.patch(
        POOL, "pool", {"metadata": {"finalizers": None}, "status": {"replicas": 1}}, by=OURS, subresource="status"
    )
    assert_broken(made, "S11", "changes ['/metadata/finalizers']")


def update(made: Made, change: dict[str, Any]) -> None:
    """Update the VM pool-0 to a new template with more memory."""
    made.patch(POOL, "pool", BIGGER)
    made.create({**revision_of(made.get(POOL, "pool"), "pool-2"), "revision": 2}, by=OURS)
    label = {REVISION_LABEL: "pool-2"}
    made.patch(VM, "pool-0", {"metadata": {"labels": label}, "spec": change}, by=OURS)


def test_s11_an_update_changes_what_the_template_changed() -> None:
    made = Made()
    pool_of(made, 1)
    update(made, {"template": {"spec": {"domain": {"memory": 2}}}})
    assert_kept(made, "S11")


def test_s11_an_update_that_reverts_a_change_of_the_user_is_found() -> None:
    made = Made()
    pool_of(made, 1)
    made.patch(VM, "pool-0", {"spec": {"runStrategy": "Halted"}})
    update(made, {"runStrategy": "Always", "template": {"spec": {"domain": {"memory": 2}}}})
    assert_broken(made, "S11", "changes ['/spec/runStrategy']")


@pytest.mark.parametrize("appended", [True, False])
def test_s11_only_a_change_of_name_generation_may_change_volumes(appended: bool) -> None:
    made = Made()
    pool_of(made, 1)
    if appended:
        made.patch(POOL, "pool", {"spec": {"nameGeneration": {"appendIndexToConfigMapRefs": True}}})
    update(made, {"template": {"spec": {"domain": {"memory": 2}, "volumes": [{"configMap": {"name": "c-0"}}]}}})
    (assert_kept if appended else assert_broken)(made, "S11", *(() if appended else ("/spec/template/spec/volumes",)))


def test_s11_an_empty_list_equals_an_absent_list() -> None:
    made = Made()
    owner = made.create(pool(1))
    made.create(revision_of(owner), by=OURS)
    first = vm("pool-0", owner)
    first["spec"]["template"]["spec"] |= {"volumes": []}
    made.create(first, by=OURS)
    assert_kept(made, "S11")


def test_s11_a_vmi_that_differs_from_its_template_is_found() -> None:
    made = Made()
    owner = made.create(replica_set(2))
    made.create({**vmi("herd-a", owner), "spec": {"domain": {"unknown": [1, 2.5]}}}, by=OURS)
    assert_broken(made, "S11", "differs from its template")


def test_s11_a_vm_has_the_template_with_its_ordinal_in_names() -> None:
    made = Made()
    owner = pool(1)
    owner["spec"]["virtualMachineTemplate"]["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "d"}}]
    owner = made.create(owner)
    made.create(revision_of(owner), by=OURS)
    first = vm("pool-0", owner)
    first["spec"]["dataVolumeTemplates"] = [{"metadata": {"name": "d-0"}}]
    made.create(first, by=OURS)
    assert_kept(made, "S11")
    second = copy.deepcopy(first)
    second["metadata"]["name"] = "pool-1"
    made.create(second, by=OURS)
    assert_broken(made, "S11", "pool-1 differs from its template")


def test_s12_patches_with_preconditions_are_right() -> None:
    made = Made()
    pool_of(made, 1)
    made.patch(POOL, "pool", {"status": {"replicas": 1}}, by=OURS, subresource="status")
    uid = made.get(POOL, "pool")["metadata"]["uid"]
    note = {"metadata": {"uid": uid, "annotations": {"vmherd.dev/healed": "0"}}}
    made.patch(POOL, "pool", note, by=OURS, body=note)
    assert_kept(made, "S12")


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"uid": "u", "annotations": {"other": "x"}}},
        {"metadata": {"annotations": {"vmherd.dev/healed": "0"}}},
        {"metadata": {"uid": "u"}, "status": {"replicas": 1}},
        [{"op": "remove", "path": "/metadata/finalizers/0"}],
    ],
)
def test_s12_a_patch_without_a_precondition_is_found(body: Any) -> None:
    made = Made()
    pool_of(made, 1)
    made.patch(POOL, "pool", {"status": {"replicas": 1}}, by=OURS, body=body)
    assert_broken(made, "S12", "no precondition" if isinstance(body, dict) else "tests no UID")


def test_s12_a_replacement_of_the_whole_object_is_found() -> None:
    made = Made()
    pool_of(made, 1)
    made.fail("update", POOL, "pool", 200, body=made.get(POOL, "pool"))
    assert_broken(made, "S12", "replaces the whole object")


def test_s12_the_owners_and_conditions_of_others_stay() -> None:
    made = Made()
    set_of(made, 1)
    foreign = {"type": "Foreign", "status": "True"}
    made.patch(SET, "herd", {"status": {"conditions": [foreign]}})
    made.patch(SET, "herd", {"status": {"conditions": [foreign], "replicas": 1}}, by=OURS, subresource="status")
    assert_kept(made, "S12")
    made.patch(SET, "herd", {"status": {"conditions": []}}, by=OURS, subresource="status")
    assert_broken(made, "S12", "loses the conditions ['Foreign']")


def test_s12_a_release_removes_one_owner_only() -> None:
    made = Made()
    owner, other = made.create(replica_set(1)), made.create(replica_set(1, "other"))
    item = vmi("herd-a", owner)
    item["metadata"]["ownerReferences"].append({"kind": "X", "name": "x", "uid": other["metadata"]["uid"]})
    made.create(item, by=OURS)
    made.patch(VMI, "herd-a", {"metadata": {"ownerReferences": None}}, by=OURS)
    assert_broken(made, "S12", "loses several owners")
