"""What a cleanup takes off, in which order, and what it leaves: a plan, made from what our finalizer holds."""

from __future__ import annotations

import msgspec
import pytest

from controller import kinds
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.pool.cleanup import plan_cleanup
from controller.runtime.plan import Patch, RemoveOwnerReference
from informers.meta import ObjectKey, OwnerReference
from tests.pool_builders import ANOTHER_CONTROLLER, OTHER_FINALIZER, POOLS, pool, vm, vm_spec, vms

OFFLINE = {"proactive": {"statePreservation": "Offline"}}
WITH_DISK = vm_spec(disks=("data",))


def steps(pools, held, *, force=False):
    """What would be done to whom, in order, and which pools are left."""
    cleanup = plan_cleanup(pools, held, POOLS, force=force)
    told = [
        ("keep" if isinstance(action, RemoveOwnerReference) else "free", action.resource.plural, action.key.name)
        for action in cleanup.plan.actions
    ]
    return told, [key.name for key in cleanup.left]


def test_vms_are_freed_before_their_pool():
    owner = pool()
    told, left = steps([owner], vms(owner, 0, 1))
    assert told == [
        ("free", "virtualmachines", "web-0"),
        ("free", "virtualmachines", "web-1"),
        ("free", "virtualmachinepools", "web"),
    ]
    assert left == []


def test_a_pool_waits_for_its_vms():
    stages = plan_cleanup([pool()], vms(pool(), 0), POOLS, force=False).plan.stages
    assert [stage.essential for stage in stages] == [True, True]


def test_only_our_finalizer_goes_and_only_from_the_object_that_was_seen():
    owner = pool(finalizers=(OTHER_FINALIZER, POOL_FINALIZER))
    [patch] = plan_cleanup([owner], [], POOLS, force=False).plan.actions
    assert isinstance(patch, Patch)
    assert msgspec.json.decode(patch.body) == [
        {"op": "test", "path": "/metadata/uid", "value": owner.metadata.uid},
        {"op": "test", "path": "/metadata/finalizers/1", "value": POOL_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]


@pytest.mark.parametrize("owners", [(), (ANOTHER_CONTROLLER,)])
def test_a_vm_that_has_left_its_pool_is_freed(owners):
    assert steps([], [vm(owners=owners)])[0] == [("free", "virtualmachines", "web-0")]


def test_a_vm_of_a_pool_that_is_gone_is_freed():
    assert steps([], vms(pool(), 0))[0] == [("free", "virtualmachines", "web-0")]


def test_a_vm_of_another_groups_pool_is_left_to_its_controller():
    owner = OwnerReference(
        api_version="pool.vmherd.dev/v1beta1", kind="VirtualMachinePool", name="web", uid="other", controller=True
    )
    held = [vm(owners=(owner,))]
    assert steps([], held) == ([], [])
    theirs = plan_cleanup([], held, kinds.POOLS.resource("pool.vmherd.dev"), force=False)
    assert len(theirs.plan.actions) == 1


@pytest.mark.parametrize(
    ("owner", "known"),
    [
        (pool(scaleInStrategy=OFFLINE), True),
        (pool(scaleInStrategy={"proactive": {"statePreservation": "x"}}), True),
        (pool(), False),
    ],
)
def test_disks_that_are_to_outlive_a_vm_that_is_being_deleted_are_saved_before_it_goes(owner, known):
    told, _ = steps([owner], vms(owner, 0, deleting=True, spec=WITH_DISK))
    assert told == [
        *([("keep", "datavolumes", "data"), ("keep", "persistentvolumeclaims", "data")] if known else []),
        ("free", "virtualmachines", "web-0"),
        ("free", "virtualmachinepools", "web"),
    ]


def test_the_disks_of_a_vm_that_is_being_deleted_without_a_pool_are_saved():
    told, _ = steps([], vms(pool(), 0, deleting=True, spec=WITH_DISK))
    assert [what for what, _, _ in told] == ["keep", "keep", "free"]


def test_a_vm_whose_disks_could_not_be_saved_is_not_freed():
    owner = pool(scaleInStrategy=OFFLINE)
    [member] = vms(owner, 0, deleting=True, spec=WITH_DISK)
    actions = plan_cleanup([owner], [member], POOLS, force=False).plan.actions
    [freed] = [a for a in actions if isinstance(a, Patch) and a.key.name == "web-0"]
    assert freed.after_owner == member.metadata.uid
    assert {a.owner_uid for a in actions if isinstance(a, RemoveOwnerReference)} == {member.metadata.uid}


def test_a_pool_that_is_being_deleted_and_keeps_disks_is_left_to_the_controller_unless_forced():
    owner = pool(scaleInStrategy=OFFLINE, deleting=True)
    members = vms(owner, 0, 1, spec=WITH_DISK)
    assert steps([owner], members) == ([], ["web"])
    told, left = steps([owner], members, force=True)
    assert len(told) == 3
    assert left == []


@pytest.mark.parametrize(
    "owner",
    [
        pool(deleting=True),
        pool(scaleInStrategy=OFFLINE),
        pool(scaleInStrategy=OFFLINE, deleting=True, finalizers=(POOL_FINALIZER, "orphan")),
    ],
)
def test_a_pool_whose_disks_are_in_no_danger_is_freed(owner):
    told, left = steps([owner], vms(owner, 0, spec=WITH_DISK))
    assert told[-1] == ("free", "virtualmachinepools", "web")
    assert left == []


def test_nothing_held_is_nothing_to_do():
    cleanup = plan_cleanup([], [], POOLS, force=False)
    assert cleanup.plan.stages == ()
    assert cleanup.left == ()


def test_the_pools_that_are_left_are_told_with_their_namespace():
    owner = pool(scaleInStrategy=OFFLINE, deleting=True)
    assert plan_cleanup([owner], vms(owner, 0), POOLS, force=False).left == (ObjectKey("default", "web"),)
