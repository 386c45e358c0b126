"""P6 and P10: only VMs whose disks must be kept have the pool finalizer, also after `statePreservation` changes."""

import json

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import POOL_FINALIZER, TAKEOVER
from controller.kubevirt.resources import VMS
from controller.pool.members.snapshot import Limits
from controller.pool.plan import plan
from controller.runtime.actions import Create, Delete, Patch
from tests.pool_builders import OTHER_FINALIZER, pool, snapshot, vm, vms
from tests.pool_healing import FAILING, announced_for
from tests.pool_updates import during_update, limited_pool, new_vms, old_vmis, restarted

ASCENDING = {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}
DISABLED = {"proactive": ASCENDING}
OFFLINE = {"proactive": {"statePreservation": "Offline", **ASCENDING}}
WITH = (OTHER_FINALIZER, POOL_FINALIZER)
WITHOUT = (OTHER_FINALIZER,)


def patches_of(todo):
    """The new finalizers in each patch of a VM, by the name of the VM."""
    bodies = {each.key.name: each for each in todo.actions if isinstance(each, Patch) and each.resource is VMS}
    return {name: json.loads(patch.body)["metadata"]["finalizers"] for name, patch in bodies.items()}


@pytest.mark.parametrize("strategy", [None, DISABLED, {"opportunistic": {}}, {"unmanaged": {}}])
def test_p10_members_lose_a_finalizer_that_they_do_not_need_at_most_burst_in_a_pass(strategy):
    owner = pool(replicas=5, scaleInStrategy=strategy)
    todo = plan(snapshot(owner, vms(owner, *range(5), finalizers=WITH), burst=3))
    assert patches_of(todo) == {f"web-{ordinal}": [OTHER_FINALIZER] for ordinal in range(3)}
    assert "2 more finalizers wait for the next pass" in todo.held
    assert "finalizers wait" not in plan(snapshot(owner, vms(owner, *range(3), finalizers=WITH), burst=3)).held


@pytest.mark.parametrize("kind", ["proactive", "opportunistic"])
@pytest.mark.parametrize("state", ["Offline", "Online"])
def test_p10_members_without_the_finalizer_get_it_at_most_burst_in_a_pass(kind, state):
    owner = pool(replicas=5, scaleInStrategy={kind: {"statePreservation": state}})
    todo = plan(snapshot(owner, vms(owner, *range(5), finalizers=WITHOUT), burst=3))
    assert patches_of(todo) == {f"web-{ordinal}": [*WITHOUT, POOL_FINALIZER] for ordinal in range(3)}


UNCHANGED = {
    "no finalizer is needed": ({"scaleInStrategy": DISABLED}, {}),
    "the finalizer is needed": ({"scaleInStrategy": OFFLINE}, {}),
    "a VM without an ordinal never gets it": ({"scaleInStrategy": OFFLINE}, {"name": "mine", "finalizers": ()}),
    "the pool is invalid": ({"replicas": -1}, {"finalizers": WITH}),
}


@pytest.mark.parametrize(("fields", "changes"), UNCHANGED.values(), ids=UNCHANGED)
def test_members_with_the_right_finalizers_are_not_patched(fields, changes):
    owner = pool(**{"replicas": 1, **fields})
    assert plan(snapshot(owner, (vm(**{"name": "web-0", "owner": owner, **changes}),))).actions == ()


DELETES = {
    "scale-in": ({"replicas": 0, "scaleInStrategy": OFFLINE}, {}, POOL_FINALIZER),
    "healing": ({"scaleInStrategy": OFFLINE, "autohealing": {"startUpFailureThreshold": 1}}, FAILING, POOL_FINALIZER),
    "with the pool": ({"deleting": True, "scaleInStrategy": OFFLINE}, {}, POOL_FINALIZER),
    "no disks are kept": ({"replicas": 0}, {}, ""),
}


@pytest.mark.parametrize(("fields", "changes", "finalizer"), DELETES.values(), ids=DELETES)
def test_p10_a_delete_that_keeps_disks_requires_the_finalizer(fields, changes, finalizer):
    owner = pool(**{"replicas": 1, **fields})
    [machine] = vms(owner, 0, **changes)
    announced = announced_for(owner, machine) if changes else owner
    [delete] = [each for each in plan(snapshot(announced, [machine])).actions if isinstance(each, Delete)]
    assert delete.finalizer == finalizer


def test_p10_a_vm_whose_vmi_is_deleted_in_the_same_pass_gets_the_finalizer():
    owner = limited_pool(replicas=1, scaleInStrategy=OFFLINE)
    machines = new_vms(owner, 0, finalizers=WITHOUT)
    todo = plan(during_update(owner, machines, vmis=old_vmis(machines)))
    assert restarted(todo) == list(patches_of(todo)) == ["web-0"]


def test_p10_a_surplus_vm_gets_the_finalizer_once_and_is_deleted_in_a_later_pass():
    owner = pool(replicas=1, scaleInStrategy=OFFLINE)
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2, finalizers=WITHOUT)))
    assert not [each for each in todo.actions if isinstance(each, Delete)]
    assert sorted(each.key.name for each in todo.actions) == ["web-0", "web-1", "web-2"]


def test_a_failed_create_does_not_delay_the_finalizers():
    owner = pool(replicas=4, scaleInStrategy=OFFLINE)
    stages = plan(snapshot(owner, vms(owner, 0, 1, 2, finalizers=WITHOUT))).stages
    first = next(number for number, stage in enumerate(stages) if isinstance(stage.actions[0], Patch))
    assert not stages[first].essential
    assert first < next(n for n, stage in enumerate(stages) if isinstance(stage.actions[0], Create))


@pytest.mark.parametrize(("strategy", "finalizers"), [(DISABLED, WITH), (OFFLINE, WITHOUT)])
def test_p17_a_paused_pool_corrects_the_finalizers_of_its_members(strategy, finalizers):
    owner = pool(replicas=9, paused=True, scaleInStrategy=strategy)
    todo = plan(snapshot(owner, vms(owner, 0, 1, finalizers=finalizers)))
    assert set(patches_of(todo)) == {"web-0", "web-1"} == {each.key.name for each in todo.actions}
    assert plan(snapshot(owner, vms(owner, 0, 1, finalizers=finalizers), settled=False)).actions == ()


@pytest.mark.parametrize(("annotations", "patched"), [({TAKEOVER: "done"}, ["web-0"]), (None, [])])
def test_a_takeover_removes_finalizers_only_after_the_pool_is_taken_over(annotations, patched):
    owner = pool(replicas=1, annotations=annotations)
    seen = snapshot(owner, vms(owner, 0, finalizers=WITH))
    assert list(patches_of(plan(replace(seen, limits=Limits(takes_over=True))))) == patched
