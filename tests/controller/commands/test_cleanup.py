"""The plan of a cleanup: the finalizers that it removes, their order, and the pools that stay unchanged."""

import msgspec
import pytest

from controller import kinds
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.pool.cleanup import plan_cleanup
from controller.runtime.actions import Patch, RemoveOwnerReference
from informers.meta import ObjectKey, OwnerReference
from tests.pool_builders import OTHER_FINALIZER, POOLS, pool, vm, vm_spec, vms

OFFLINE = {"proactive": {"statePreservation": "Offline"}}
WITH_DISK = vm_spec(disks=("data",))


HELD = (POOL_FINALIZER,)


def steps(pools, held, *, force=False):
    """The planned actions in order, and the pools that are not changed."""
    cleanup = plan_cleanup(pools, held, POOLS, force=force)
    actions = [
        ("keep" if isinstance(action, RemoveOwnerReference) else "free", action.resource.plural, action.key.name)
        for action in cleanup.plan.actions
    ]
    return actions, list(cleanup.left)


def test_finalizers_of_vms_are_removed_before_that_of_their_pool():
    owner = pool()
    actions, left = steps([owner], vms(owner, 0, 1, finalizers=HELD))
    assert actions == [
        ("free", "virtualmachines", "web-0"),
        ("free", "virtualmachines", "web-1"),
        ("free", "virtualmachinepools", "web"),
    ]
    assert left == []


def test_only_our_finalizer_is_removed_and_only_from_the_object_that_was_read():
    owner = pool(finalizers=(OTHER_FINALIZER, POOL_FINALIZER))
    [patch] = plan_cleanup([owner], [], POOLS, force=False).plan.actions
    assert isinstance(patch, Patch)
    assert msgspec.json.decode(patch.body) == [
        {"op": "test", "path": "/metadata/uid", "value": owner.metadata.uid},
        {"op": "test", "path": "/metadata/finalizers/1", "value": POOL_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]


def test_a_vm_whose_pool_has_another_group_is_not_changed():
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
def test_preserved_disks_of_a_terminating_vm_lose_their_owner_first(owner, known):
    actions, _ = steps([owner], vms(owner, 0, deleting=True, spec=WITH_DISK))
    assert actions == [
        *([("keep", "datavolumes", "data"), ("keep", "persistentvolumeclaims", "data")] if known else []),
        ("free", "virtualmachines", "web-0"),
        ("free", "virtualmachinepools", "web"),
    ]


def test_a_vm_whose_disks_could_not_be_preserved_keeps_its_finalizer():
    owner = pool(scaleInStrategy=OFFLINE)
    [member] = vms(owner, 0, deleting=True, spec=WITH_DISK)
    actions = plan_cleanup([owner], [member], POOLS, force=False).plan.actions
    [freed] = [a for a in actions if isinstance(a, Patch) and a.key.name == "web-0"]
    assert freed.after_owner == member.metadata.uid
    assert {a.owner_uid for a in actions if isinstance(a, RemoveOwnerReference)} == {member.metadata.uid}


def test_a_terminating_pool_that_preserves_disks_is_not_changed_unless_forced():
    owner = pool(scaleInStrategy=OFFLINE, deleting=True)
    members = vms(owner, 0, 1, spec=WITH_DISK)
    assert steps([owner], members) == ([], [ObjectKey("default", "web")])
    actions, left = steps([owner], members, force=True)
    assert len(actions) == 3
    assert left == []
