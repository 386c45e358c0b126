"""P15: healing keeps preserved disks. A VM is not healed if a preserved disk fails."""

import json

import pytest

from controller.kubevirt.annotations import POOL_FINALIZER
from controller.runtime.actions import Delete, Patch
from tests.pool_builders import vm_spec, vms
from tests.pool_healing import FAILING, heal, healing_pool, reasons

PRESERVING = {"proactive": {"statePreservation": "Online"}}
DISK_FAILS = {"ready": False, "printable": "DataVolumeError", "ready_for_s": 3600}


def pool_that_preserves(**fields):
    return healing_pool(scaleInStrategy=PRESERVING, spec=vm_spec(disks=["data"]), **fields)


@pytest.mark.parametrize("strategy", [PRESERVING, None], ids=["kept", "not kept"])
def test_p15_a_vm_is_deleted_in_the_foreground_only_if_its_disks_are_not_kept(strategy):
    """A foreground deletion deletes the disks before the VM (P10)."""
    owner = healing_pool(scaleInStrategy=strategy, spec=vm_spec(disks=["data"]))
    for changes in (FAILING, *([] if strategy else [DISK_FAILS])):
        todo = heal(owner, *vms(owner, 0, **changes), *vms(owner, 1, 2))
        [delete] = [each for each in todo.actions if isinstance(each, Delete)]
        assert delete.foreground is (strategy is None)


def test_p15_a_vm_without_our_finalizer_gets_it_before_it_is_healed():
    owner = pool_that_preserves()
    [patch] = heal(owner, *vms(owner, 0, **FAILING, finalizers=()), *vms(owner, 1, 2)).actions
    assert isinstance(patch, Patch)
    assert POOL_FINALIZER in json.loads(patch.body)["metadata"]["finalizers"]


@pytest.mark.parametrize("state", ["DataVolumeError", "ErrorPvcNotFound"])
def test_p15_a_vm_is_not_healed_if_its_failing_disk_is_preserved(state):
    owner = pool_that_preserves()
    todo = heal(owner, *vms(owner, 0, **{**DISK_FAILS, "printable": state}), *vms(owner, 1, 2))
    assert todo.actions == ()
    assert reasons(todo) == ["HealingHeld"]
    [notice] = todo.notices
    assert "web-0" in notice.message
    assert state in notice.message
    assert "disk" in todo.held
