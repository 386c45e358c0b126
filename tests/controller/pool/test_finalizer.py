"""P6: the pool's own finalizer, and the pool's end."""

import json

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import DATA_VOLUMES, VMS
from controller.pool.plan import plan
from controller.runtime.plan import Create, Delete, PatchType, RemoveOwnerReference
from tests.fakes.rules import finalizers_of
from tests.pool_builders import OTHER_FINALIZER, POOLS, pool, snapshot, vm, vm_spec, vms
from tests.pool_simulation import PoolSimulation

OFFLINE = {"proactive": {"statePreservation": "Offline"}}
THIRD = "example.org/third"


def leaving(*also, **fields):
    """A pool that is being deleted."""
    return pool(deleting=True, finalizers=(POOL_FINALIZER, *also), **fields)


def simulation_of(**fields):
    simulation = PoolSimulation(pool(finalizers=(), **{"spec": vm_spec(disks=["data"]), **fields}))
    simulation.come_to_rest()
    return simulation


def test_p6_the_pool_carries_our_finalizer_before_it_has_its_first_vm():
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


def test_p6_no_vm_is_made_while_the_pool_cannot_take_the_finalizer():
    simulation = PoolSimulation(pool(finalizers=()))
    simulation.refuses = lambda request: request.resource is POOLS
    simulation.run_pass()
    assert simulation.vms == {}


def test_p6_a_pool_that_has_the_finalizer_is_left_alone():
    owner = pool(finalizers=(OTHER_FINALIZER, POOL_FINALIZER))
    assert plan(snapshot(owner, vms(owner, 0, 1, 2))).actions == ()


def test_p6_a_pool_that_is_being_deleted_gets_no_finalizer_and_makes_no_vm():
    owner = pool(deleting=True, finalizers=(OTHER_FINALIZER,))
    todo = plan(snapshot(owner))
    assert todo.actions == ()
    assert todo.held == "being deleted"


def test_p6_first_the_vms_lose_our_finalizer_and_then_the_pool_does():
    owner = leaving(OTHER_FINALIZER)
    held = vm("web-0", owner=owner, finalizers=(OTHER_FINALIZER, POOL_FINALIZER))
    [stage] = plan(snapshot(owner, (held,))).stages
    [patch] = stage.actions
    assert (patch.resource, patch.key.name) == (VMS, "web-0")
    free = vm("web-0", owner=owner, finalizers=(OTHER_FINALIZER,))
    [patch] = plan(snapshot(owner, (free,))).actions
    assert (patch.resource, patch.key.name) == (POOLS, "web")
    assert json.loads(patch.body) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-of-the-pool"},
        {"op": "test", "path": "/metadata/finalizers/0", "value": POOL_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]


def test_p6_the_pool_waits_for_vms_that_left_it_too():
    owner = leaving()
    [patch] = plan(snapshot(owner, (vm("web-0"),))).actions
    assert patch.key.name == "web-0"


def test_p6_more_vms_than_a_pass_may_write_go_in_the_next():
    owner = leaving()
    assert len(plan(snapshot(owner, vms(owner, *range(9)), burst=4)).actions) == 4


def test_p6_members_that_no_longer_match_are_let_go_as_well():
    owner = leaving()
    assert len(plan(snapshot(owner, vms(owner, 0, 1, labels={}))).actions) == 2


def test_p6_a_pool_that_was_let_go_is_left_alone():
    assert plan(snapshot(pool(deleting=True, finalizers=("foregroundDeletion",)))).actions == ()


@pytest.mark.parametrize("also", [{}, {"paused": True}, {"maxUnavailable": "half"}], ids=["", "paused", "invalid"])
@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_p6_a_deleted_pool_takes_its_vms_and_their_disks_along(policy, also):
    simulation = simulation_of()
    simulation.change(**also)
    simulation.delete_pool(policy)
    simulation.come_to_rest()
    assert list(simulation.server.every()) == []


@pytest.mark.parametrize("strategy", [None, OFFLINE], ids=["disks may go", "disks stay"])
def test_p6_with_cascade_orphan_vms_stay_with_their_disks_and_without_a_trace_of_us(strategy):
    simulation = simulation_of(scaleInStrategy=strategy)
    before = {name: each["metadata"]["uid"] for name, each in simulation.vms.items()}
    simulation.delete_pool("Orphan")
    simulation.come_to_rest()
    assert simulation.is_gone
    assert not [each for each in simulation.actions if isinstance(each, RemoveOwnerReference)]
    assert {name: each["metadata"]["uid"] for name, each in simulation.vms.items()} == before
    for ordinal in range(3):
        meta = simulation.vms[f"web-{ordinal}"]["metadata"]
        assert "ownerReferences" not in meta
        assert POOL_FINALIZER not in meta["finalizers"]
        assert simulation.of(DATA_VOLUMES)[f"data-{ordinal}"]["metadata"]["ownerReferences"][0]["uid"] == meta["uid"]


def test_p6_p10_disks_that_are_to_be_preserved_outlive_the_pool():
    simulation = simulation_of(scaleInStrategy=OFFLINE)
    simulation.delete_pool()
    simulation.come_to_rest()
    assert simulation.is_gone
    assert simulation.vms == {}
    assert sorted(simulation.claims) == ["data-0", "data-1", "data-2"]


def test_p6_p10_disks_are_taken_off_a_vm_only_once_it_is_being_deleted():
    """From any other the VM controller would take them back, and the garbage collector would take them with the VM."""
    owner = leaving(scaleInStrategy=OFFLINE, spec=vm_spec(disks=["data"]))
    members = (*vms(owner, 0, spec=vm_spec(disks=["data-0"])), *vms(owner, 1, deleting=True))
    todo = plan(snapshot(owner, members))
    assert {each.owner_uid for each in todo.actions if isinstance(each, RemoveOwnerReference)} == {"uid-web-1"}
    assert [each.key.name for each in todo.actions if isinstance(each, Delete)] == ["web-0"]


def test_p6_p10_a_vm_is_deleted_with_its_pool_only_if_the_server_still_knows_it_as_the_pools():
    """The collector is done with orphaning, and our cache of pools shows that sooner than our cache of VMs."""
    simulation = simulation_of(scaleInStrategy=OFFLINE)
    simulation.delete_pool("Orphan")
    before = simulation.snapshot()
    simulation.collect_garbage()
    assert simulation.pool["metadata"]["finalizers"] == [POOL_FINALIZER]
    lagging = replace(simulation.snapshot(), members=before.members, strays=())
    todo = plan(lagging)
    assert [each for each in todo.actions if isinstance(each, Delete)]
    simulation.carry_out(todo.stages)
    assert not [name for name, each in simulation.vms.items() if "deletionTimestamp" in each["metadata"]]
    simulation.come_to_rest()
    assert sorted(simulation.vms) == ["web-0", "web-1", "web-2"]


def test_p6_p10_a_vm_that_lost_our_finalizer_gets_it_back_before_it_goes_with_its_pool():
    simulation = simulation_of(scaleInStrategy=OFFLINE)
    kept = [each for each in finalizers_of(simulation.vms["web-1"]) if each != POOL_FINALIZER]
    simulation.edit_vm("web-1", metadata={"finalizers": kept})
    simulation.delete_pool()
    simulation.come_to_rest()
    assert simulation.is_gone
    assert sorted(simulation.claims) == ["data-0", "data-1", "data-2"]


def test_p6_p10_it_is_not_deleted_before_it_has_it():
    owner = leaving(scaleInStrategy=OFFLINE)
    todo = plan(snapshot(owner, (*vms(owner, 0, finalizers=()), *vms(owner, 1))))
    assert [each.key.name for each in todo.actions if isinstance(each, Delete)] == ["web-1"]
    assert [each.key.name for each in todo.stages[0].actions] == ["web-0"]


def test_p6_p10_no_more_than_the_burst_are_deleted_with_their_pool_in_a_pass():
    owner = leaving(scaleInStrategy=OFFLINE)
    todo = plan(snapshot(owner, vms(owner, *range(9)), burst=4))
    assert len([each for each in todo.actions if isinstance(each, Delete)]) == 4


def test_p6_a_pool_that_is_being_deleted_waits_until_the_cache_shows_what_was_written():
    owner = leaving()
    todo = plan(snapshot(owner, vms(owner, 0), settled=False))
    assert todo.stages == ()
    assert todo.held
