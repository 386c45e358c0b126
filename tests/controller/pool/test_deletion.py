"""P2, P6, P9 and P10: finalizers of pools and VMs, and VMs that leave their pool with or without their disks."""

import json
from datetime import timedelta

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import time_text
from controller.kubevirt.annotations import (
    CLAIMED_BY,
    CLAIMED_UNTIL,
    POOL_FINALIZER,
    POOL_UID,
    PROTECT,
    RELEASED,
    STANDBY,
    STANDBY_STATE,
)
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DATA_VOLUMES, PVCS, VMS
from controller.pool.plan import plan
from controller.runtime.actions import Create, Delete, Patch, RemoveOwnerReference
from informers.objects import PatchType
from tests.builders import NOW
from tests.pool_builders import ANOTHER_CONTROLLER, OTHER_FINALIZER, POOLS, pool, revision, snapshot, vm, vm_spec, vms
from tests.pool_scenes import DESCENDING, FAILING, OFFLINE, announced_for
from tests.pool_simulation import PoolSimulation

THIRD = "example.org/third"


def leaving(*also, **fields):
    """A terminating pool with the pool finalizer. `also` are further finalizers."""
    return pool(deleting=True, finalizers=(POOL_FINALIZER, *also), **fields)


def simulation_of(**fields):
    simulation = PoolSimulation(pool(finalizers=(), **{"spec": vm_spec(disks=["data"]), **fields}))
    simulation.come_to_rest()
    return simulation


def test_p6_the_pool_gets_the_finalizer_before_its_first_vm():
    owner = pool(finalizers=(OTHER_FINALIZER, THIRD), version="7")
    first, *others = plan(snapshot(owner)).stages
    [patch] = first.actions
    assert first.essential
    assert (patch.resource, patch.key.name, patch.type) == (POOLS, "web", PatchType.MERGE)
    finalizers = [OTHER_FINALIZER, THIRD, POOL_FINALIZER]
    identity = {"uid": "uid-of-the-pool", "resourceVersion": "7"}
    assert json.loads(patch.body)["metadata"] == {**identity, "finalizers": finalizers}
    assert all(isinstance(each, Create) for stage in others for each in stage.actions)
    owner = pool(finalizers=(OTHER_FINALIZER, POOL_FINALIZER))
    assert plan(snapshot(owner, vms(owner, 0, 1, 2))).actions == ()


MINE = (POOL_FINALIZER,)
WITHOUT_FIRST_FINALIZER = [
    {"op": "test", "path": "/metadata/finalizers/0", "value": POOL_FINALIZER},
    {"op": "remove", "path": "/metadata/finalizers/0"},
]
HEALS = {"autohealing": {"startUpFailureThreshold": 1}}
CRASHING = {"ready": False, "failures": 9, "printable": "CrashLoopBackOff"}

PATCHED = {
    "VMs with the finalizer": ({}, vms(pool(), 0, 1, finalizers=MINE), ["web-0", "web-1"]),
    "members that no longer match": ({}, vms(pool(), 0, labels={}, finalizers=MINE), ["web-0"]),
    "strays": ({}, (vm("web-0"),), ["web-0"]),
    "at most burst": ({}, vms(pool(), *range(9), finalizers=MINE), ["web-0", "web-1", "web-2", "web-3"]),
    "the pool, if no VM has the finalizer": ({}, vms(pool(), 0, 1, 2), ["web"]),
    "a pool without the finalizer": ({"finalizers": (OTHER_FINALIZER,)}, (), []),
    "a failing VM is not healed": (HEALS, vms(pool(), 0, finalizers=MINE, **CRASHING), ["web-0"]),
    "before the cache shows earlier writes": ({"settled": False}, vms(pool(), 0, finalizers=MINE), []),
}


@pytest.mark.parametrize(("facts", "machines", "expected"), PATCHED.values(), ids=PATCHED)
def test_p6_what_loses_the_finalizer_in_the_next_pass(facts, machines, expected):
    fields = {"finalizers": MINE, "settled": True, **facts}
    settled = fields.pop("settled")
    todo = plan(snapshot(pool(deleting=True, **fields), machines, burst=4, settled=settled))
    assert [(type(each), each.key.name) for each in todo.actions] == [(Patch, name) for name in expected]
    assert todo.held


def test_p6_first_the_vms_lose_our_finalizer_and_then_the_pool_does():
    owner = leaving(OTHER_FINALIZER)
    with_finalizer = vm("web-0", owner=owner, finalizers=(OTHER_FINALIZER, POOL_FINALIZER))
    [stage] = plan(snapshot(owner, (with_finalizer,))).stages
    [patch] = stage.actions
    assert (patch.resource, patch.key.name) == (VMS, "web-0")
    [patch] = plan(snapshot(owner, (vm("web-0", owner=owner, finalizers=(OTHER_FINALIZER,)),))).actions
    assert (patch.resource, patch.key.name) == (POOLS, "web")
    of_uid = {"op": "test", "path": "/metadata/uid", "value": "uid-of-the-pool"}
    assert json.loads(patch.body) == [of_uid, *WITHOUT_FIRST_FINALIZER]


@pytest.mark.parametrize("strategy", [None, OFFLINE])
def test_p20_a_protected_vm_leaves_a_pool_that_is_deleted_and_the_pool_waits_for_that(strategy):
    owner = leaving(**({} if strategy is None else {"scaleInStrategy": strategy}))
    machines = (*vms(owner, 0, annotations={PROTECT: "true"}), *vms(owner, 1, finalizers=()))
    [patch] = [each for each in plan(snapshot(owner, machines)).actions if each.key.name == "web-0"]
    assert patch.why == "it is protected, and its pool is being deleted"
    assert b"/metadata/ownerReferences" in patch.body
    assert "ownerReferences" not in str(plan(snapshot(leaving("orphan"), machines)).actions), "each VM stays"


@pytest.mark.parametrize("until", [{}, {CLAIMED_UNTIL: "2026-08-01T11:00:00Z"}], ids=["a claim", "a claim that ended"])
@pytest.mark.parametrize("strategy", [None, OFFLINE])
def test_p33_a_claim_ends_with_its_pool_and_its_disks_go(strategy, until):
    owner = leaving(**({} if strategy is None else {"scaleInStrategy": strategy}))
    claimed = vms(owner, 0, finalizers=MINE, annotations={CLAIMED_BY: "job", **until})
    todo = plan(snapshot(owner, claimed)).actions
    if strategy is None:
        assert [type(each) for each in todo] == [Patch], "the garbage collector deletes the VM with its disks"
        return
    [delete] = todo
    assert (delete.key.name, delete.foreground, delete.finalizer) == ("web-0", True, "")


def test_p33_the_disks_of_a_claim_of_a_backup_stay_as_the_pool_says():
    owner = leaving(scaleInStrategy=OFFLINE)
    restored = vms(owner, 0, finalizers=MINE, annotations={CLAIMED_BY: "job", CLAIMED_UNTIL: "2020-01-01T00:00:00Z"})
    [delete] = plan(snapshot(owner, restored)).actions
    assert (delete.key.name, delete.foreground, delete.finalizer) == ("web-0", False, POOL_FINALIZER)


def pruned(todo):
    return [each.key.name for each in todo.actions if each.resource is CONTROLLER_REVISIONS]


def test_p11_with_cascade_orphan_only_revisions_of_the_pool_are_deleted():
    owner = leaving("orphan")
    mine = revision(owner, "web-1", number=1)
    orphaned = revision(owner, "web-2", number=2, owned=None, labels={POOL_UID: owner.metadata.uid})
    others = [
        revision(owner, "web-3", number=3, owned=False, labels={POOL_UID: owner.metadata.uid}),
        revision(owner, "web-4", number=4, owned=None, labels={POOL_UID: "another"}),
        revision(owner, "web-5", number=5, owned=None),
        revision(owner, "web-6", number=6, deleting=True),
    ]
    assert pruned(plan(snapshot(owner, revisions=[mine, orphaned, *others]))) == ["web-1", "web-2"]
    assert pruned(plan(snapshot(leaving(), revisions=[mine]))) == [], "the garbage collector deletes them"


def test_p10_with_cascade_orphan_the_revisions_stay_while_they_name_disks_that_must_be_kept():
    owner = leaving("orphan", scaleInStrategy=OFFLINE)
    assert pruned(plan(snapshot(owner, (*vms(owner, 0), *vms(owner, 1, deleting=True))))) == []
    assert pruned(plan(snapshot(owner, vms(owner, 0)))) == ["web-1"]


@pytest.mark.parametrize(("without", "expected"), [((), ["web-0", "web-1", "web-2", "web-3"]), ((0,), ["web-1"])])
def test_p6_p10_vms_with_the_finalizer_are_deleted_with_their_pool_at_most_burst_in_a_pass(without, expected):
    owner = leaving(scaleInStrategy=OFFLINE)
    others = vms(owner, *(range(1, 2) if without else range(9)))
    todo = plan(snapshot(owner, (*vms(owner, *without, finalizers=()), *others), burst=4))
    assert [each.key.name for each in todo.actions if isinstance(each, Delete)] == expected
    assert [each.key.name for each in todo.actions if isinstance(each, Patch)] == [f"web-{n}" for n in without]
    assert not without or isinstance(todo.actions[0], Patch)


def test_p6_p10_a_vm_is_deleted_with_its_pool_only_if_the_server_confirms_the_owner():
    """The garbage collector has removed the VMs' owner references, but the cache does not show this yet."""
    simulation = simulation_of(scaleInStrategy=OFFLINE)
    simulation.delete_pool("Orphan")
    before = simulation.snapshot()
    simulation.collect_garbage()
    assert simulation.pool["metadata"]["finalizers"] == [POOL_FINALIZER]
    todo = plan(replace(simulation.snapshot(), members=before.members, strays=()))
    assert [each for each in todo.actions if isinstance(each, Delete)]
    simulation.carry_out(todo.stages)
    assert not [name for name, each in simulation.vms.items() if "deletionTimestamp" in each["metadata"]]
    simulation.come_to_rest()
    assert sorted(simulation.vms) == ["web-0", "web-1", "web-2"]


LAST_KEPT = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def owner_removals(todo):
    """For each owner reference that the plan removes: the disk's resource and name, and the owner's UID."""
    return [(a.resource, a.key.name, a.owner_uid) for a in todo.actions if isinstance(a, RemoveOwnerReference)]


@pytest.mark.parametrize(
    ("name", "label"), [("web", "web"), (f"{'w' * 61}-.{'x' * 9}", "w" * 61)], ids=["short", "long"]
)
def test_p10_a_kept_disk_gets_the_name_of_its_pool_as_a_label(name, label):
    owner = pool(name, replicas=0, scaleInStrategy=OFFLINE, spec=vm_spec(disks=["data"]))
    leaving = vm(f"{name}-0", owner=owner, deleting=True, spec=vm_spec(disks=["data-0"]))
    removals = [each for each in plan(snapshot(owner, [leaving])).actions if isinstance(each, RemoveOwnerReference)]
    assert {each.kept_for for each in removals} == {label}


def patched(todo):
    return {each.key.name: each for each in todo.actions if isinstance(each, Patch) and each.resource is VMS}


def test_p2_a_member_whose_labels_stop_matching_loses_our_reference_and_our_finalizer_in_one_write():
    owner = pool(replicas=1)
    released = vm("web-0", owner=owner, labels={"app": "debug"}, finalizers=(OTHER_FINALIZER, POOL_FINALIZER))
    todo = plan(snapshot(owner, (released,)))
    assert [each.key.name for each in todo.actions] == ["web", "web-0", "web-1"], "a note, the release, the new VM"
    assert not any(each.essential for each in todo.stages[:2]), "its replacement does not wait for the release"
    patch = patched(todo)["web-0"]
    assert patch.type is PatchType.JSON
    assert json.loads(patch.body) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-web-0"},
        {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": "uid-of-the-pool"},
        {"op": "remove", "path": "/metadata/ownerReferences/0"},
        {"op": "test", "path": "/metadata/finalizers/1", "value": POOL_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]


def test_p2_at_most_burst_members_are_released_and_a_vm_of_another_controller_loses_only_the_finalizer():
    owner = pool(replicas=0)
    assert len(patched(plan(snapshot(owner, vms(owner, *range(9), labels={}), burst=4)))) == 4
    foreign = vm("web-0", owners=(ANOTHER_CONTROLLER,), finalizers=(POOL_FINALIZER, OTHER_FINALIZER))
    [patch] = patched(plan(snapshot(owner, (foreign,)))).values()
    assert json.loads(patch.body)[1:] == WITHOUT_FIRST_FINALIZER


def test_p2_in_a_row_a_standby_is_no_surplus_and_one_that_keeps_its_labels_ends_the_row():
    row, standby = {RELEASED: f"1 {time_text(NOW - timedelta(seconds=300))}"}, {STANDBY_STATE: "preparing"}
    owner = pool(replicas=1, annotations={**row, STANDBY: "1"})
    strange = (*vms(owner, 0, labels={}), *vms(owner, 1, labels={}, annotations=standby))
    assert patched(plan(snapshot(owner, strange))) == {}
    kept = vms(owner, 2, annotations=standby, age_s=100)
    assert patched(plan(snapshot(owner, (*strange, *kept)))).keys() >= {"web-0", "web-1"}


def test_p10_disks_lose_their_owner_before_the_vm_loses_the_finalizer():
    owner = pool(scaleInStrategy=LAST_KEPT)
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
    now, before = (pool(scaleInStrategy=LAST_KEPT, spec=vm_spec(disks=[name])) for name in ("new", "old"))
    terminating = vms(now, 1, deleting=True, revision="web-2", spec=vm_spec(disks=["new-1"]))
    kept = (revision(before, number=1), revision(now, number=2))
    todo = plan(snapshot(now, terminating, revisions=kept))
    assert [name for resource, name, _ in owner_removals(todo) if resource is PVCS] == ["new-1", "old-1"]


TERMINATING = {
    "disks are not kept": (DESCENDING, [{"deleting": True}], []),
    "an invalid strategy keeps disks": ({"proactive": {}, "unmanaged": {}}, [{"deleting": True}], ["web-0"]),
    "the pool is too large": ({"opportunistic": {}}, [{"deleting": True}], []),
    "a foreground deletion": (LAST_KEPT, [{"foreground": True}], []),
    "at most burst": (LAST_KEPT, [{"deleting": True}] * 9, ["web-0", "web-1", "web-2", "web-3"]),
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


ASCENDING = {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}
FIRST = {"proactive": ASCENDING}
FIRST_KEPT = {"proactive": {"statePreservation": "Offline", **ASCENDING}}
WITH = (OTHER_FINALIZER, POOL_FINALIZER)
WITHOUT = (OTHER_FINALIZER,)


def patches_of(todo):
    """The new finalizers in each patch of a VM, by the name of the VM."""
    bodies = {each.key.name: each for each in todo.actions if isinstance(each, Patch) and each.resource is VMS}
    return {name: json.loads(patch.body)["metadata"]["finalizers"] for name, patch in bodies.items()}


@pytest.mark.parametrize("strategy", [None, FIRST, {"opportunistic": {}}, {"unmanaged": {}}])
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


DELETES = {
    "scale-in": ({"replicas": 0, "scaleInStrategy": FIRST_KEPT}, {}, POOL_FINALIZER),
    "healing": ({"scaleInStrategy": FIRST_KEPT, **HEALS}, FAILING, POOL_FINALIZER),
    "with the pool": ({"deleting": True, "scaleInStrategy": FIRST_KEPT}, {}, POOL_FINALIZER),
    "no disks are kept": ({"replicas": 0}, {}, ""),
}


@pytest.mark.parametrize(("fields", "changes", "finalizer"), DELETES.values(), ids=DELETES)
def test_p10_a_delete_that_keeps_disks_requires_the_finalizer(fields, changes, finalizer):
    owner = pool(**{"replicas": 1, **fields})
    [machine] = vms(owner, 0, **changes)
    announced = announced_for(owner, machine) if changes else owner
    [delete] = [each for each in plan(snapshot(announced, [machine])).actions if isinstance(each, Delete)]
    assert delete.finalizer == finalizer


def test_p10_a_surplus_vm_gets_the_finalizer_once_and_is_deleted_in_a_later_pass():
    owner = pool(replicas=1, scaleInStrategy=FIRST_KEPT)
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2, finalizers=WITHOUT)))
    assert not [each for each in todo.actions if isinstance(each, Delete)]
    assert sorted(each.key.name for each in todo.actions) == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize(("strategy", "finalizers"), [(FIRST, WITH), (FIRST_KEPT, WITHOUT)])
def test_p17_a_paused_pool_corrects_the_finalizers_of_its_members(strategy, finalizers):
    owner = pool(replicas=9, paused=True, scaleInStrategy=strategy)
    todo = plan(snapshot(owner, vms(owner, 0, 1, finalizers=finalizers)))
    assert set(patches_of(todo)) == {"web-0", "web-1"} == {each.key.name for each in todo.actions}
    assert plan(snapshot(owner, vms(owner, 0, 1, finalizers=finalizers), settled=False)).actions == ()
