"""P6: the finalizer on the pool, and the deletion of a pool."""

import json

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import POOL_FINALIZER, POOL_UID
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMS
from controller.pool.plan import plan
from controller.runtime.actions import Create, Delete, Patch, RemoveOwnerReference
from informers.objects import PatchType
from tests.fakes.virtual_time import run
from tests.pool_builders import OTHER_FINALIZER, POOLS, pool, revision, snapshot, vm, vm_spec, vms
from tests.pool_simulation import PoolSimulation

OFFLINE = {"proactive": {"statePreservation": "Offline"}}
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
    assert json.loads(patch.body)["metadata"] == {
        "uid": "uid-of-the-pool",
        "resourceVersion": "7",
        "finalizers": [OTHER_FINALIZER, THIRD, POOL_FINALIZER],
    }
    assert all(isinstance(each, Create) for stage in others for each in stage.actions)
    owner = pool(finalizers=(OTHER_FINALIZER, POOL_FINALIZER))
    assert plan(snapshot(owner, vms(owner, 0, 1, 2))).actions == ()


MINE = (POOL_FINALIZER,)
HEALS = {"autohealing": {"startUpFailureThreshold": 1}}
FAILING = {"ready": False, "failures": 9, "printable": "CrashLoopBackOff"}

PATCHED = {
    "VMs with the finalizer": ({}, vms(pool(), 0, 1, finalizers=MINE), ["web-0", "web-1"]),
    "members that no longer match": ({}, vms(pool(), 0, labels={}, finalizers=MINE), ["web-0"]),
    "strays": ({}, (vm("web-0"),), ["web-0"]),
    "at most burst": ({}, vms(pool(), *range(9), finalizers=MINE), ["web-0", "web-1", "web-2", "web-3"]),
    "the pool, if no VM has the finalizer": ({}, vms(pool(), 0, 1, 2), ["web"]),
    "a pool without the finalizer": ({"finalizers": (OTHER_FINALIZER,)}, (), []),
    "a failing VM is not healed": (HEALS, vms(pool(), 0, finalizers=MINE, **FAILING), ["web-0"]),
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
    assert json.loads(patch.body) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-of-the-pool"},
        {"op": "test", "path": "/metadata/finalizers/0", "value": POOL_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]


def test_p6_after_the_pool_has_lost_its_finalizer_no_status_is_written():
    """The pool is probably gone. If another finalizer keeps the pool, the next reconciliation writes the status."""
    simulation = simulation_of()
    held = {"metadata": {"finalizers": [OTHER_FINALIZER, POOL_FINALIZER]}}
    simulation.server.change(POOLS, simulation.key("web"), held)
    simulation.change(replicas=2)
    simulation.delete_pool()
    before = len(simulation.server.requests)
    simulation.run_pass()
    writes = [each for each in simulation.server.requests[before:] if each.is_write and each.resource is POOLS]
    assert len(writes) == 1, "the patch that removes the finalizer"
    simulation.come_to_rest()
    assert simulation.pool["status"]["observedGeneration"] == simulation.pool["metadata"]["generation"]


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


def test_p6_p10_disks_lose_their_owner_only_while_the_vm_is_terminating():
    """KubeVirt restores the owner reference of a disk whose VM is not terminating."""
    owner = leaving(scaleInStrategy=OFFLINE, spec=vm_spec(disks=["data"]))
    members = (*vms(owner, 0, spec=vm_spec(disks=["data-0"])), *vms(owner, 1, deleting=True))
    todo = plan(snapshot(owner, members))
    assert {each.owner_uid for each in todo.actions if isinstance(each, RemoveOwnerReference)} == {"uid-web-1"}
    assert [each.key.name for each in todo.actions if isinstance(each, Delete)] == ["web-0"]


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


def test_r9_while_the_cache_still_shows_a_deleted_pool_no_request_is_sent():
    """After the removal of the finalizer, the answer of the server has the old version of the pool."""
    simulation = simulation_of()
    key = simulation.key(simulation.name)
    simulation.delete_pool()
    simulation.process.catch_up()
    simulation.server.on_write = lambda request, before: None  # the cache shows no later writes
    while not simulation.is_gone:
        run(simulation.process.reconcile(key))
    sent = len(simulation.server.requests)
    run(simulation.process.reconcile(key))
    assert simulation.server.requests[sent:] == []
