"""The snapshot of a pool: its members and strays (P2), and the VMIs of its members."""

import pytest
from msgspec.structs import replace

from controller import kinds
from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import POOL_UID
from controller.kubevirt.vm_types import ControllerRevision
from controller.replicas.revisions import kept_revision
from informers.meta import ObjectKey, ObjectMeta
from tests.builders import NOW
from tests.pool_builders import (
    ANOTHER_CONTROLLER,
    POOLS,
    member,
    pool,
    revision,
    rules_of,
    snapshot,
    stores,
    vm,
    vmi,
    vms,
)


def names(objects):
    return sorted(each.metadata.name for each in objects)


def owned_by(owner, resource=POOLS, **changes):
    return replace(controller_reference(resource, owner.metadata), **changes)


def test_a_missing_pool_has_no_snapshot():
    assert rules_of(stores(None)).take_snapshot(ObjectKey("default", "web"), now=NOW, settled=True) is None


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


def test_p2_a_vm_in_another_namespace_is_not_a_member():
    owner = pool()
    assert not snapshot(owner, (vm("web-0", owner=owner, namespace="elsewhere"),)).members


def test_p2_a_revision_in_another_namespace_does_not_belong_to_the_pool():
    owner, elsewhere = pool(), pool(namespace="elsewhere")
    seen = snapshot(owner, revisions=[revision(owner), revision(elsewhere), revision(owner, "x", owned=False)])
    assert names(seen.revisions) == ["web-1"]
    assert "x" in seen.revision_names


STRAYS = {
    "detached": (lambda owner: {}, True),
    "its reference is not a controller reference": (
        lambda owner: {"owners": (owned_by(owner, controller=False),)},
        True,
    ),
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


def test_p3_every_vm_name_in_the_namespace_is_taken():
    owner = pool()
    seen = snapshot(owner, (vm("web-0", finalizers=()), vm("web-1", owner=owner, deleting=True)))
    assert [name in seen.taken for name in ("web-0", "web-1", "web-2")] == [True, True, False]


def test_a_vmi_belongs_to_a_vm_only_if_the_vm_controls_it():
    owner = pool()
    machines = vms(owner, 0, 1, 2)
    of_predecessor = vmi(vm("web-1", uid="an-earlier-vm"))
    foreign = vmi(machines[2], owners=())
    seen = snapshot(owner, machines, vmis=(vmi(machines[0]), of_predecessor, foreign))
    assert [member(seen, each.metadata.name).vmi is not None for each in machines] == [True, False, False]


def test_a_member_that_a_user_created_has_no_ordinal():
    owner = pool()
    from_user, from_pool = vm("mine", owner=owner), vm("web-3", owner=owner)
    seen = snapshot(owner, (from_user, from_pool))
    assert (seen.ordinal_of(from_user), seen.ordinal_of(from_pool)) == (None, 3)


FOREIGN_OWNERS = pytest.mark.parametrize("owner_kind", ["DaemonSet", "StatefulSet", "VirtualMachine", None])


def foreign_revision(name: str, owner_kind: str | None) -> ControllerRevision:
    of_pool = revision(pool(), name, labels={"app": "web"})
    [owner] = of_pool.metadata.owner_references or ()
    owners = (replace(owner, kind=owner_kind),) if owner_kind else ()
    return replace(of_pool, metadata=replace(of_pool.metadata, owner_references=owners))


@FOREIGN_OWNERS
@pytest.mark.parametrize(
    "name",
    [
        "web-6b8b4d9f5c",
        "revision-start-vm-19cbcd49-e753-4e8a-9ef8-ebc1097a0ba9-1",
        "web-0-cx1.medium-v1beta1-19cbcd49-e753-4e8a-9ef8-ebc1097a0ba9-2",
    ],
)
def test_p11_the_cache_does_not_keep_revisions_that_no_pool_controls(name, owner_kind):
    assert kept_revision(foreign_revision(name, owner_kind)) is None


@FOREIGN_OWNERS
@pytest.mark.parametrize("name", ["web-1", "web-12-0a1b2c3d", "web-12-0a1b2c3d-1"])
def test_p11_the_cache_keeps_only_the_identity_of_a_foreign_revision_with_a_name_like_a_pools(name, owner_kind):
    foreign = foreign_revision(name, owner_kind)
    kept = kept_revision(foreign)
    assert kept is not None
    assert kept.metadata == ObjectMeta(
        name=name, namespace="default", uid=foreign.metadata.uid, resource_version=foreign.metadata.resource_version
    )
    assert (bytes(kept.data), kept.revision) == (b"", 0)


def test_p11_the_cache_keeps_the_revisions_of_pools():
    of_pool = revision(pool(), "web-1")
    assert kept_revision(of_pool) == of_pool
    assert bytes(of_pool.data) != b""


def test_p11_the_cache_keeps_a_former_revision_of_a_pool_without_its_data():
    former = revision(pool(), "anything", owned=None, labels={POOL_UID: "uid-of-the-pool"})
    kept = kept_revision(former)
    assert kept is not None
    assert (kept.metadata, bytes(kept.data)) == (former.metadata, b"")
