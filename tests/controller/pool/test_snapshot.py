"""The snapshot of a pool (P2), and VMs and revisions whose pool no longer exists (P6, P11)."""

import pytest
from msgspec.structs import replace

from controller import kinds
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import POOL_UID
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.pool.members.snapshot import Limits
from controller.pool.triggers import pools_of_revision
from controller.replicas.revisions import kept_revision
from controller.runtime.actions import Delete, Patch, Plan, RemoveOwnerReference
from informers.meta import ObjectMeta
from informers.store import Added, Updated
from tests.pool_builders import (
    ANOTHER_CONTROLLER,
    OTHER_FINALIZER,
    POOLS,
    member,
    pool,
    revision,
    rules_of,
    snapshot,
    stores,
    vm,
    vm_spec,
    vmi,
    vms,
)


def names(objects):
    return sorted(each.metadata.name for each in objects)


def owned_by(owner, resource=POOLS, **changes):
    return replace(controller_reference(resource, owner.metadata), **changes)


def test_p2_members_are_the_vms_whose_controller_has_the_pools_uid():
    owner = pool()
    others = (
        vm("orphan", finalizers=()),
        vm("of-another", owners=(ANOTHER_CONTROLLER,), finalizers=()),
        vm("no-controller", owners=(owned_by(owner, controller=False),), finalizers=()),
        vm("of-an-earlier-pool", owners=(owned_by(owner, uid="earlier"),), finalizers=()),
    )
    seen = snapshot(owner, (*vms(owner, 0, 1), *others))
    assert names(seen.members) == ["web-0", "web-1"]
    assert seen.strays == ()


def test_p2_a_revision_in_another_namespace_does_not_belong_to_the_pool():
    owner, elsewhere = pool(), pool(namespace="elsewhere")
    seen = snapshot(owner, revisions=[revision(owner), revision(elsewhere), revision(owner, "x", owned=False)])
    assert names(seen.revisions) == ["web-1"]
    assert "x" in seen.revision_names


STRAYS = {
    "detached": (lambda owner: {}, True),
    "its reference names no controller": (lambda owner: {"owners": (owned_by(owner, controller=False),)}, True),
    "given to another controller": (lambda owner: {"owners": (ANOTHER_CONTROLLER,)}, True),
    "of an earlier pool with this name": (lambda owner: {"owners": (owned_by(owner, uid="earlier"),)}, True),
    "given to another pool": (lambda owner: {"owners": (owned_by(owner, uid="x", name="other"),)}, False),
    "of a pool with this name in another group": (
        lambda owner: {"owners": (owned_by(owner, kinds.POOLS.resource("pools.example.org"), uid="x"),)},
        False,
    ),
    "a member": (lambda owner: {"owner": owner}, False),
    "without the pool finalizer": (lambda owner: {"finalizers": ("example.org/other",)}, False),
    "of another namespace": (lambda owner: {"namespace": "elsewhere"}, False),
    "with a name of another pool": (lambda owner: {"name": "web-1-0"}, False),
    "with a name of no pool": (lambda owner: {"name": "web"}, False),
}


@pytest.mark.parametrize(("fields", "stray"), STRAYS.values(), ids=STRAYS)
def test_p2_which_vms_are_strays(fields, stray):
    owner = pool()
    assert bool(snapshot(owner, (vm(**{"name": "web-0", **fields(owner)}),), vmis=()).strays) is stray


def test_a_vmi_belongs_to_a_vm_only_if_the_vm_controls_it():
    owner = pool()
    machines = vms(owner, 0, 1, 2)
    of_predecessor = vmi(vm("web-1", uid="an-earlier-vm"))
    foreign = vmi(machines[2], owners=())
    seen = snapshot(owner, machines, vmis=(vmi(machines[0]), of_predecessor, foreign))
    assert [member(seen, each.metadata.name).vmi is not None for each in machines] == [True, False, False]


LIKE_A_POOLS = ["web-1", "web-12-0a1b2c3d", "web-12-0a1b2c3d-1"]
LIKE_A_SETS = ["web-6b8b4d9f5c"]
"""With an owner of another kind, it is no revision of a set."""
UNLIKE = ["web-other", "revision-start-vm-19cbcd49-e753-4e8a-9ef8-ebc1097a0ba9-1"]
UNLIKE += ["web-0-cx1.medium-v1beta1-19cbcd49-e753-4e8a-9ef8-ebc1097a0ba9-2"]


@pytest.mark.parametrize("owner_kind", ["DaemonSet", "StatefulSet", "VirtualMachine", None])
@pytest.mark.parametrize("name", [*LIKE_A_POOLS, *LIKE_A_SETS, *UNLIKE])
def test_p11_the_cache_keeps_only_the_identity_of_a_foreign_revision_with_a_name_like_a_pools(name, owner_kind):
    of_pool = revision(pool(), name, labels={"app": "web"})
    owners = tuple(replace(each, kind=owner_kind) for each in of_pool.metadata.owner_references if owner_kind)
    kept = kept_revision(replace(of_pool, metadata=replace(of_pool.metadata, owner_references=owners)))
    assert (kept is None) is (name in UNLIKE or (name in LIKE_A_SETS and owner_kind is not None))
    if kept is not None:
        identity = ObjectMeta(name=name, namespace="default", uid=of_pool.metadata.uid, resource_version="1")
        assert (kept.metadata, bytes(kept.data), kept.revision) == (identity, b"", 0)


def test_p11_the_cache_keeps_a_former_revision_of_a_pool():
    former = revision(pool(), "anything", owned=None, labels={POOL_UID: "uid-of-the-pool"})
    kept = kept_revision(former)
    assert kept is not None
    assert (kept.metadata, bytes(kept.data)) == (former.metadata, bytes(former.data))


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
    names = ["web-1", "web-2-0a1b2c3d", "web-3"]
    left = [revision(GONE, name, **LEFT) for name in names]
    assert (revisions_deleted(*left), revisions_deleted(*left, burst=2)) == (names, names[:2])


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


def test_p11_a_former_revision_with_a_cut_name_is_found_and_deleted():
    former, unlabelled = revision(GONE, "web-1", **LEFT), revision(GONE, "web-1", owned=None)
    changes = (Added(former), Updated(revision(GONE, "web-1"), former), Added(unlabelled))
    assert [[key.name for key, _ in pools_of_revision(each)] for each in changes] == [["web"], ["web"], []]
    long = pool("x" * 60)
    cut = revision(long, "x" * 51 + "-10-0a1b2c3d", **LEFT)
    [key] = [key for key, _ in pools_of_revision(Added(cut))]
    for absent in (key, long.metadata.key):
        [delete] = rules_of(stores(None, revisions=[cut]), Limits()).plan_absent(absent).actions
        assert delete.key.name == cut.metadata.name
