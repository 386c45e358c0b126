"""What a pass may know: whose VM is whose (P2), and whose VMI."""

import pytest
from msgspec.structs import replace

from controller import kinds
from controller.apimachinery.owner_references import controller_reference
from controller.pool.snapshot import Limits, take_snapshot
from informers.meta import ObjectKey
from tests.builders import NOW
from tests.pool_builders import (
    ANOTHER_CONTROLLER,
    POOLS,
    pool,
    revision,
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


def test_a_pool_that_is_not_there_has_no_snapshot():
    seen = take_snapshot(stores(None), ObjectKey("default", "web"), now=NOW, settled=True, limits=Limits(), pools=POOLS)
    assert seen is None


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


def test_p2_a_reference_across_namespaces_makes_no_member():
    owner = pool()
    elsewhere = vm("web-0", owner=owner, namespace="elsewhere")
    assert snapshot(owner, (elsewhere,)).members == ()


def test_p2_a_revision_across_namespaces_is_not_the_pools():
    owner, elsewhere = pool(), pool(namespace="elsewhere")
    seen = snapshot(owner, revisions=[revision(owner), revision(elsewhere), revision(owner, "x", owned=False)])
    assert names(seen.revisions) == ["web-1"]
    assert "x" in seen.revision_names


STRAYS = {
    "detached": (lambda owner: {}, True),
    "its reference does not control": (lambda owner: {"owners": (owned_by(owner, controller=False),)}, True),
    "given to another controller": (lambda owner: {"owners": (ANOTHER_CONTROLLER,)}, True),
    "left over from an earlier pool": (lambda owner: {"owners": (owned_by(owner, uid="earlier"),)}, True),
    "given to another pool": (lambda owner: {"owners": (owned_by(owner, uid="x", name="other"),)}, False),
    "of a pool of that name in another group": (
        lambda owner: {"owners": (owned_by(owner, kinds.POOLS.resource("pools.example.org"), uid="x"),)},
        False,
    ),
    "a member": (lambda owner: {"owner": owner}, False),
    "not held by us": (lambda owner: {"finalizers": ("example.org/other",)}, False),
    "of another namespace": (lambda owner: {"namespace": "elsewhere"}, False),
    "of another pool, by its name": (lambda owner: {"name": "web-1-0"}, False),
    "of no pool, by its name": (lambda owner: {"name": "web"}, False),
}


@pytest.mark.parametrize(("fields", "stray"), STRAYS.values(), ids=STRAYS)
def test_p2_who_has_left_and_is_still_held(fields, stray):
    owner = pool()
    seen = snapshot(owner, (vm(**{"name": "web-0", **fields(owner)}),), vmis=())
    assert bool(seen.strays) is stray


def test_p3_every_name_of_the_namespace_is_taken_whoever_has_it():
    owner = pool()
    seen = snapshot(owner, (vm("web-0", finalizers=()), vm("web-1", owner=owner, deleting=True)))
    assert [name in seen.taken for name in ("web-0", "web-1", "web-2")] == [True, True, False]


def test_a_vmi_is_the_vms_own_only_if_the_vm_controls_it():
    owner = pool()
    machines = vms(owner, 0, 1, 2)
    reused = vmi(vm("web-1", uid="an-earlier-vm"))
    strangers = vmi(machines[2], owners=())
    seen = snapshot(owner, machines, vmis=(vmi(machines[0]), reused, strangers))
    assert [seen.vmi_of(each) is not None for each in machines] == [True, False, False]


def test_a_member_that_somebody_else_made_has_no_ordinal():
    owner = pool()
    adopted, ours = vm("mine", owner=owner), vm("web-3", owner=owner)
    seen = snapshot(owner, (adopted, ours))
    assert (seen.ordinal_of(adopted), seen.ordinal_of(ours)) == (None, 3)
