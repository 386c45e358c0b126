"""Properties of the plans of a pool. `tests/simulation` shows the properties of whole lives."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.resources import VMIS, VMS
from controller.pool.plan import plan
from controller.pool.status import next_status, outcome_notices
from controller.replicas.release_delay import RELEASE_DELAY
from controller.runtime.actions import Create, Delete, Done, Patch
from controller.runtime.status import status_patch
from tests.builders import LABELS, NOW
from tests.pool_builders import ANOTHER_CONTROLLER, pool, snapshot, vm, vms
from tests.pool_simulation import PoolSimulation
from tests.pool_strategies import wild_pools

PRESERVING = {"proactive": {"statePreservation": "Offline"}}


def test_p2_a_vm_that_is_not_a_member_is_never_changed():
    simulation = PoolSimulation(pool(replicas=2))
    for name, owners in (("web-1", []), ("web-7", [msgspec.to_builtins(ANOTHER_CONTROLLER)])):
        metadata = {"name": name, "labels": {**LABELS}, "ownerReferences": owners}
        simulation.server.put(VMS, {"metadata": metadata, "spec": {}})
    simulation.come_to_rest()
    simulation.change(replicas=0)
    simulation.come_to_rest()
    assert not {each.key.name for each in simulation.actions if each.resource in (VMS, VMIS)} & {"web-1", "web-7"}
    assert simulation.vms.keys() >= {"web-1"}


@pytest.mark.parametrize("burst", [1, 4])
@pytest.mark.parametrize("what", ["out", "in", "delete", "release", "detach", "end"])
def test_p4_p8_a_pass_keeps_to_the_burst_for_each_kind_of_write(what, burst):
    """The same change happens to all six VMs at once."""
    simulation = PoolSimulation(pool(replicas=0 if what == "out" else 6, scaleInStrategy=PRESERVING), burst=burst)
    simulation.come_to_rest()
    simulation.live_on(RELEASE_DELAY.total_seconds())
    for name in simulation.members():
        match what:
            case "delete":
                simulation.delete_by_user(name)
            case "release":
                simulation.edit_vm(name, metadata={"labels": {"app": "debug"}})
            case "detach":
                simulation.edit_vm(name, metadata={"ownerReferences": []})
    if what == "end":
        simulation.delete_pool()
    else:
        simulation.change(replicas=0 if what == "in" else 6)
    writes = [
        sum(isinstance(each, kind) and each.resource is VMS for each in stage.actions)
        for stage in plan(simulation.snapshot()).stages
        for kind in (Create, Delete, Patch)
    ]
    assert max(writes) == burst


@pytest.mark.parametrize("how", ["unsettled", "paused"])
def test_a_pool_that_is_held_creates_and_deletes_nothing(how):
    owner = pool(replicas=3, paused=how == "paused")
    leaving = vm("web-1", owner=owner, labels={"app": "other"})
    todo = plan(snapshot(owner, (*vms(owner, 0), leaving), settled=how != "unsettled"))
    assert todo.held
    assert not [each for each in todo.actions if isinstance(each, Create | Delete)]
    assert {each.key.name for each in todo.actions if each.resource is VMS} <= {"web-1"}
    assert how == "paused" or todo.stages == ()


@settings(max_examples=300)
@given(wild_pools, st.booleans(), st.booleans())
def test_p1_any_pool_that_decodes_gets_a_plan_and_a_status(owner, settled, deleting):
    if deleting:
        owner = replace(owner, metadata=replace(owner.metadata, deletion_timestamp=NOW))
    members = (*vms(owner, 0, 1), *vms(owner, 2, deleting=True), vm("web-3"), vm("web-4", owners=(ANOTHER_CONTROLLER,)))
    seen = snapshot(owner, members, revisions=(), settled=settled)
    todo = plan(seen)
    assert todo == plan(seen)
    if todo.held.startswith("invalid"):
        assert not [each for each in todo.actions if isinstance(each, Create | Delete)]
    for action in todo.actions:
        if isinstance(action, Create):
            msgspec.json.decode(action.body)
    outcomes = tuple(Done(action) for action in todo.actions)
    outcome_notices(outcomes)
    status_patch(owner, next_status(seen, outcomes))
