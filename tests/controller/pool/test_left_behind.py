"""P6: VMs with the pool finalizer whose pool no longer exists."""

import pytest

from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.pool.rules import PoolRules, UnreadyMemory
from controller.pool.snapshot import Limits
from controller.runtime.plan import Patch, Plan, RemoveOwnerReference
from informers.meta import ObjectKey
from tests.pool_builders import ANOTHER_CONTROLLER, OTHER_FINALIZER, POOLS, pool, stores, vm, vm_spec

GONE = pool()
KEY = GONE.metadata.key


def plan_without_pool(*machines, burst=250):
    return PoolRules(stores(None, machines), POOLS, Limits(burst), UnreadyMemory()).plan_absent(KEY)


def test_p6_a_terminating_vm_keeps_its_disks_and_loses_the_finalizer():
    left_behind = vm("web-0", owner=GONE, deleting=True, spec=vm_spec(disks=["data"]))
    todo = plan_without_pool(left_behind)
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


def test_p6_a_vm_of_another_controller_loses_the_finalizer():
    todo = plan_without_pool(vm("web-0", deleting=True, owners=(ANOTHER_CONTROLLER,)))
    assert [action.key for action in todo.actions if isinstance(action, Patch)] == [ObjectKey("default", "web-0")]


def test_p10_disks_of_a_left_behind_vm_in_foreground_deletion_are_not_kept():
    todo = plan_without_pool(vm("web-0", owner=GONE, foreground=True, spec=vm_spec(disks=["data"])))
    assert [type(action) for action in todo.actions] == [Patch]


def test_p4_at_most_burst_left_behind_vms_are_patched_in_a_pass():
    todo = plan_without_pool(*(vm(f"web-{ordinal}", deleting=True) for ordinal in range(5)), burst=2)
    assert [action.key.name for action in todo.actions] == ["web-0", "web-1"]
