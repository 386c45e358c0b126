"""P6: what is done about VMs that our finalizer holds, and whose pool is gone."""

import pytest

from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.pool.rules import PoolRules
from controller.pool.snapshot import Limits
from controller.runtime.plan import Patch, Plan, RemoveOwnerReference
from informers.meta import ObjectKey
from tests.pool_builders import ANOTHER_CONTROLLER, OTHER_FINALIZER, POOLS, pool, stores, vm, vm_spec

GONE = pool()
KEY = GONE.metadata.key


def plan_without_pool(*machines, burst=250):
    return PoolRules(stores(None, machines), POOLS, Limits(burst)).plan_absent(KEY)


def test_p6_a_vm_that_is_being_deleted_keeps_its_disks_and_loses_our_finalizer():
    left = vm("web-0", owner=GONE, deleting=True, spec=vm_spec(disks=["data"]))
    todo = plan_without_pool(left)
    rescue, farewell = todo.stages
    assert {(each.resource, each.key.name) for each in rescue.actions if isinstance(each, RemoveOwnerReference)} == {
        (DATA_VOLUMES, "data"),
        (PVCS, "data"),
    }
    [patch] = farewell.actions
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
    ids=["lives", "lives without owner", "held by others", "of another pool", "of another name", "elsewhere"],
)
def test_p6_other_vms_are_left_alone(bystander):
    assert plan_without_pool(bystander) == Plan()


def test_p6_a_vm_that_went_to_another_controller_is_let_go():
    todo = plan_without_pool(vm("web-0", deleting=True, owners=(ANOTHER_CONTROLLER,)))
    assert [action.key for action in todo.actions if isinstance(action, Patch)] == [ObjectKey("default", "web-0")]


def test_p10_disks_that_a_foreground_deletion_takes_are_not_fought_for():
    todo = plan_without_pool(vm("web-0", owner=GONE, foreground=True, spec=vm_spec(disks=["data"])))
    assert [type(action) for action in todo.actions] == [Patch]


def test_p4_no_more_than_a_pass_may_write():
    todo = plan_without_pool(*(vm(f"web-{ordinal}", deleting=True) for ordinal in range(5)), burst=2)
    assert [action.key.name for action in todo.actions] == ["web-0", "web-1"]
