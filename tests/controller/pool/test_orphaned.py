"""P6, P11: VMs with the pool finalizer, and revisions, whose pool no longer exists."""

import pytest

from controller.kubevirt.annotations import POOL_UID
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.pool.members.snapshot import Limits
from controller.pool.triggers import pools_of_revision
from controller.runtime.actions import Delete, Patch, Plan, RemoveOwnerReference
from informers.store import Added, Updated
from tests.pool_builders import ANOTHER_CONTROLLER, OTHER_FINALIZER, pool, revision, rules_of, stores, vm, vm_spec

GONE = pool()
KEY = GONE.metadata.key


def plan_without_pool(*machines, burst=250):
    return rules_of(stores(None, machines), Limits(burst)).plan_absent(KEY)


def test_p6_a_terminating_vm_keeps_its_disks_and_loses_the_finalizer():
    todo = plan_without_pool(vm("web-0", owner=GONE, deleting=True, spec=vm_spec(disks=["data"])))
    keep_disks, removals = todo.stages
    assert all(isinstance(each, RemoveOwnerReference) for each in keep_disks.actions)
    assert {(each.resource, each.key.name) for each in keep_disks.actions} == {(DATA_VOLUMES, "data"), (PVCS, "data")}
    [patch] = removals.actions
    assert isinstance(patch, Patch)
    assert (patch.resource, patch.key.name, patch.after_owner) == (VMS, "web-0", "uid-web-0")


@pytest.mark.parametrize(
    "bystander",
    [
        vm("web-0", owner=GONE),
        vm("web-0"),
        vm("web-0", deleting=True, finalizers=(OTHER_FINALIZER,)),
        vm("web-0", deleting=True, owner=pool(name="other")),
        vm("api-0", deleting=True),
        vm("web-0", deleting=True, namespace="elsewhere"),
    ],
    ids=["not terminating", "without owner", "another finalizer", "another pool", "another name", "another namespace"],
)
def test_p6_other_vms_are_not_changed(bystander):
    assert plan_without_pool(bystander) == Plan()


WITHOUT_DISKS = {
    "of another controller": ((vm("web-0", deleting=True, owners=(ANOTHER_CONTROLLER,)),), ["web-0"]),
    "in foreground deletion": ((vm("web-0", owner=GONE, foreground=True, spec=vm_spec(disks=["data"])),), ["web-0"]),
    "at most burst": (tuple(vm(f"web-{n}", deleting=True) for n in range(5)), ["web-0", "web-1"]),
}


@pytest.mark.parametrize(("machines", "patched"), WITHOUT_DISKS.values(), ids=WITHOUT_DISKS)
def test_p6_strays_lose_the_finalizer_alone(machines, patched):
    todo = plan_without_pool(*machines, burst=2)
    assert [(type(action), action.key.name) for action in todo.actions] == [(Patch, name) for name in patched]


def revisions_deleted(*revisions, living=None, burst=250):
    todo = rules_of(stores(living, revisions=revisions), Limits(burst)).plan_absent(KEY)
    assert all(isinstance(action, Delete) and action.uid and action.version for action in todo.actions)
    return [action.key.name for action in todo.actions]


LEFT = {"owned": None, "labels": {POOL_UID: GONE.metadata.uid}}


def test_p11_a_revision_without_owner_is_deleted_when_its_pool_is_gone():
    assert revisions_deleted(revision(GONE, "web-1", **LEFT), revision(GONE, "web-2-0a1b2c3d", **LEFT)) == [
        "web-1",
        "web-2-0a1b2c3d",
    ]
    assert revisions_deleted(*(revision(GONE, f"web-{number}", **LEFT) for number in range(3)), burst=2) == [
        "web-0",
        "web-1",
    ]


OTHER = pool(name="web-1", uid="uid-of-another-pool")
OTHER_REVISIONS = {
    "an owner reference": revision(GONE, "web-1", labels=LEFT["labels"]),
    "another controller": revision(GONE, "web-1", owned=False, labels=LEFT["labels"]),
    "no label of a pool": revision(GONE, "web-1", owned=None),
    "another name": revision(GONE, "api-1", **LEFT),
    "a pool that exists": revision(OTHER, "web-1-1", owned=None, labels={POOL_UID: OTHER.metadata.uid}),
    "a deletion timestamp": revision(GONE, "web-1", deleting=True, **LEFT),
}


@pytest.mark.parametrize("other", OTHER_REVISIONS.values(), ids=OTHER_REVISIONS)
def test_p11_other_revisions_stay_when_a_pool_is_gone(other):
    assert revisions_deleted(other, living=OTHER) == []


def woken_by(change):
    return [key.name for key, _ in pools_of_revision(change)]


def test_p11_a_former_revision_triggers_the_pool_that_its_name_suggests():
    former, unlabelled = revision(GONE, "web-1", **LEFT), revision(GONE, "web-1", owned=None)
    assert woken_by(Added(former)) == ["web"]
    assert woken_by(Updated(revision(GONE, "web-1"), former)) == ["web"]
    assert woken_by(Added(unlabelled)) == []


def test_p11_a_former_revision_with_a_cut_name_is_found_and_deleted():
    long = pool("x" * 60)
    cut = revision(long, "x" * 51 + "-10-0a1b2c3d", **LEFT)
    [key] = [key for key, _ in pools_of_revision(Added(cut))]
    for absent in (key, long.metadata.key):
        [delete] = rules_of(stores(None, revisions=[cut]), Limits()).plan_absent(absent).actions
        assert delete.key.name == cut.metadata.name
