"""P2, P9 and P10: VMs that leave the pool lose the finalizer. The disks are kept or deleted as the pool's spec says."""

import json

import pytest

from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.pool.plan import plan
from controller.runtime.actions import Patch, RemoveOwnerReference
from informers.objects import PatchType
from tests.pool_builders import ANOTHER_CONTROLLER, OTHER_FINALIZER, pool, revision, snapshot, vm, vm_spec, vms

OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
DISABLED = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def owner_removals(todo):
    """For each owner reference that the plan removes: the disk's resource and name, and the owner's UID."""
    return [
        (each.resource, each.key.name, each.owner_uid)
        for each in todo.actions
        if isinstance(each, RemoveOwnerReference)
    ]


def patched(todo):
    return {each.key.name: each for each in todo.actions if isinstance(each, Patch) and each.resource is VMS}


def test_p2_a_member_whose_labels_stop_matching_loses_our_reference_and_our_finalizer_in_one_write():
    owner = pool(replicas=1)
    released = vm(
        "web-0", owner=owner, owners=(), labels={"app": "debug"}, finalizers=(OTHER_FINALIZER, POOL_FINALIZER)
    )
    patch = patched(plan(snapshot(owner, (released,))))["web-0"]
    assert patch.type is PatchType.JSON
    assert json.loads(patch.body) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-web-0"},
        {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": "uid-of-the-pool"},
        {"op": "remove", "path": "/metadata/ownerReferences/0"},
        {"op": "test", "path": "/metadata/finalizers/1", "value": POOL_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]


def test_p2_the_replacement_of_a_released_vm_does_not_wait_for_the_release():
    owner = pool(replicas=1)
    todo = plan(snapshot(owner, vms(owner, 0, labels={"app": "debug"})))
    assert [(each.key.name, type(each).__name__) for each in todo.actions] == [("web-0", "Patch"), ("web-1", "Create")]
    assert not todo.stages[0].essential


def test_p2_a_terminating_member_is_not_released_but_loses_the_finalizer():
    owner = pool(replicas=1, scaleInStrategy=OFFLINE, spec=vm_spec(disks=["data"]))
    terminating = vms(owner, 0, labels={"app": "debug"}, deleting=True, spec=vm_spec(disks=["data-0"]))
    todo = plan(snapshot(owner, terminating))
    assert owner_removals(todo) == [(DATA_VOLUMES, "data-0", "uid-web-0"), (PVCS, "data-0", "uid-web-0")]
    assert [step["path"] for step in json.loads(patched(todo)["web-0"].body)] == [
        "/metadata/uid",
        "/metadata/finalizers/0",
        "/metadata/finalizers/0",
    ]


def test_p2_at_most_burst_members_are_released_and_a_vm_of_another_controller_loses_only_the_finalizer():
    owner = pool(replicas=0)
    assert len(patched(plan(snapshot(owner, vms(owner, *range(9), labels={}), burst=4)))) == 4
    foreign = vm("web-0", owners=(ANOTHER_CONTROLLER,), finalizers=(POOL_FINALIZER, OTHER_FINALIZER))
    [patch] = patched(plan(snapshot(owner, (foreign,)))).values()
    assert json.loads(patch.body)[1:] == [
        {"op": "test", "path": "/metadata/finalizers/0", "value": POOL_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]


def test_p10_disks_lose_their_owner_before_the_vm_loses_the_finalizer():
    owner = pool(scaleInStrategy=OFFLINE)
    disks = [{"name": "more", "persistentVolumeClaim": {"claimName": "shared"}}]
    spec = vm_spec(disks=["data-2"], volumes=disks)
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), *vms(owner, 2, deleting=True, spec=spec))))
    keep_disks, removals = todo.stages
    assert {(each.resource.plural, each.key.name) for each in keep_disks.actions} == {
        (plural, name) for plural in ("datavolumes", "persistentvolumeclaims") for name in ("data-2", "shared")
    }
    [patch] = removals.actions
    assert patch.after_owner == "uid-web-2"
    assert (keep_disks.essential, removals.essential) == (False, False)


def test_p10_a_disk_with_a_name_from_an_earlier_template_is_kept_too():
    """An update renames the disk in the VM's spec at once. The VM still owns the old disk."""
    now, before = (pool(scaleInStrategy=OFFLINE, spec=vm_spec(disks=[name])) for name in ("new", "old"))
    terminating = vms(now, 1, deleting=True, revision="web-2", spec=vm_spec(disks=["new-1"]))
    kept = (revision(before, number=1), revision(now, number=2))
    todo = plan(snapshot(now, terminating, revisions=kept))
    assert [name for resource, name, _ in owner_removals(todo) if resource is PVCS] == ["new-1", "old-1"]


TERMINATING = {
    "disks are not kept": (DISABLED, [{"deleting": True}], []),
    "an invalid strategy keeps disks": ({"proactive": {}, "unmanaged": {}}, [{"deleting": True}], ["web-0"]),
    "the pool is too large": ({"opportunistic": {}}, [{"deleting": True}], []),
    "a foreground deletion": (OFFLINE, [{"foreground": True}], []),
    "at most burst": (OFFLINE, [{"deleting": True}] * 9, ["web-0", "web-1", "web-2", "web-3"]),
}


@pytest.mark.parametrize(("strategy", "changes", "keeping"), TERMINATING.values(), ids=TERMINATING)
def test_p10_terminating_vms_lose_the_finalizer_and_perhaps_keep_their_disks(strategy, changes, keeping):
    owner = pool(replicas=0, scaleInStrategy=strategy)
    spec = vm_spec(disks=["data"])
    terminating = [each for n, of_vm in enumerate(changes) for each in vms(owner, n, spec=spec, **of_vm)]
    todo = plan(snapshot(owner, terminating, burst=4))
    assert sorted(patched(todo)) == [f"web-{n}" for n in range(min(len(changes), 4))]
    assert [(resource, uid) for resource, _, uid in owner_removals(todo)] == [
        (resource, f"uid-{name}") for name in keeping for resource in (DATA_VOLUMES, PVCS)
    ]
