"""The guarantees of a pool, as properties of its plans. Simulated users and a simulated KubeVirt take part."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import POOL_FINALIZER, PROTECT
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMIS, VMS
from controller.pool.members.select import allows
from controller.pool.members.traits import erase
from controller.pool.plan import plan
from controller.pool.spec.naming import ordinal_of
from controller.pool.spec.policies import Strategy, keeps_disks
from controller.pool.status import next_status, outcome_notices
from controller.replicas.release_delay import RELEASE_DELAY
from controller.runtime.actions import Create, Delete, Done, Patch
from controller.runtime.members.groups import grouped
from controller.runtime.status import status_patch
from tests.builders import NOW
from tests.fakes.rules import finalizers_of
from tests.pool_builders import (
    ANOTHER_CONTROLLER,
    OTHER_FINALIZER,
    POOLS,
    intent_of,
    pool,
    situation_of,
    snapshot,
    vm,
    vm_spec,
    vms,
)
from tests.pool_simulation import PoolSimulation
from tests.pool_strategies import BYSTANDING, GENTLE_EDITS, STEERING, edits, scale_ins, simulations, wild_pools


@st.composite
def lived(draw: st.DrawFn, **fixed: object) -> PoolSimulation:
    """A simulation with a history: users changed objects while the controller worked or was stopped."""
    simulation = draw(simulations(**fixed))
    if draw(st.booleans()):
        simulation.come_to_rest()
    for _ in range(draw(st.integers(0, 4))):
        draw(edits(simulation))
        for _ in range(draw(st.integers(0, 2))):
            simulation.run_pass()
            simulation.live_on()
    return simulation


def count_that_should_be(simulation: PoolSimulation) -> range:
    """The numbers of members that are right when the pool is at rest. If a surplus VM may not be deleted, the pool has
    more members than `replicas`.
    """
    seen = simulation.snapshot()
    intent = intent_of(seen.owner)
    if intent.scale_in.strategy is not Strategy.PROACTIVE:
        return range(intent.replicas, 1000)
    selection = intent.scale_in.selection
    marked = [each for each in seen.members if (each.metadata.annotations or {}).get(PROTECT) == "true"]
    unmovable = [each for each in seen.members if each in marked or not allows(selection, each.vm)]
    right = max(intent.replicas, len(unmovable))
    return range(right, right + 1)


@given(lived())
def test_from_any_state_a_pool_reaches_the_wanted_number_and_stops_writing(simulation):
    simulation.come_to_rest()
    assert len(simulation.members()) in count_that_should_be(simulation)
    assert plan(simulation.snapshot()).stages == ()
    assert status_patch(simulation.snapshot().owner, next_status(simulation.snapshot(), ())) is None
    assert simulation.pool["status"]["replicas"] == len(simulation.members())


@given(lived())
def test_at_rest_no_terminating_vm_has_our_finalizer_and_foreign_finalizers_stay(simulation):
    """G9 and P6: if a VM leaves the pool, the controller removes its own finalizer and no other finalizer."""
    had_another = OTHER_FINALIZER in finalizers_of(simulation.pool)
    simulation.come_to_rest()
    assert not [name for name, vm in simulation.vms.items() if "deletionTimestamp" in vm["metadata"]]
    held = {name for name, vm in simulation.vms.items() if POOL_FINALIZER in finalizers_of(vm)}
    assert held == (set(simulation.members()) if keeps_disks(simulation.snapshot().owner.spec) else set())
    assert (OTHER_FINALIZER in finalizers_of(simulation.pool)) is had_another


@given(lived(), st.data())
def test_p3_created_vms_get_the_smallest_free_ordinals(simulation, data):
    data.draw(edits(simulation, ("scale",)))
    taken = {ordinal_of(name, "web") for name in simulation.vms}
    created = [
        each.key.name
        for each in plan(simulation.snapshot()).actions
        if isinstance(each, Create) and each.resource is VMS
    ]
    free = [ordinal for ordinal in range(40) if ordinal not in taken]
    assert created == [f"web-{ordinal}" for ordinal in free[: len(created)]]


@given(lived())
def test_p3_creates_never_exceed_what_is_missing(simulation):
    seen = simulation.snapshot()
    created = [each for each in plan(seen).actions if isinstance(each, Create) and each.resource is VMS]
    matching = [vm for vm in seen.members if vm.metadata.deletion_timestamp or vm.metadata.labels["app"] == "web"]
    assert len(created) <= max(intent_of(seen.owner).replicas - len(matching), 0)


@given(lived(bystanders=True))
def test_p2_a_vm_that_is_not_a_member_is_never_changed(simulation):
    strangers = {name for name, vm in simulation.vms.items() if vm["metadata"]["labels"].items() >= BYSTANDING.items()}
    simulation.come_to_rest()
    assert not {each.key.name for each in simulation.actions if each.resource in (VMS, VMIS)} & strangers


@given(lived(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_the_objects_in_the_cache(simulation, random):
    seen = simulation.snapshot()
    members, strays, revisions = map(list, (seen.members, seen.strays, seen.revisions))
    for each in (members, strays, revisions):
        random.shuffle(each)
    lists = {"strays": tuple(strays), "revisions": tuple(revisions)}
    shuffled = replace(seen, members=grouped(members, erase), **lists)
    deleted = replace(seen.owner, metadata=replace(seen.owner.metadata, deletion_timestamp=seen.now))
    for owner in (seen.owner, deleted):
        assert plan(replace(shuffled, owner=owner)) == plan(replace(seen, owner=owner))


PRESERVING = {"proactive": {"statePreservation": "Offline"}}


@given(simulations(scaleInStrategy=PRESERVING), st.sampled_from(["out", "in", "delete", "release", "detach", "end"]))
def test_p4_p8_a_pass_keeps_to_the_burst_for_each_kind_of_write(simulation, what):
    """The same change happens to all six VMs at once."""
    simulation.change(replicas=0 if what == "out" else 6)
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
    stages = plan(simulation.snapshot()).stages
    writes = [
        sum(isinstance(each, kind) and each.resource is VMS for each in stage.actions)
        for stage in stages
        for kind in (Create, Delete, Patch)
    ]
    assert max(writes) == simulation.limits.burst


@given(lived(), st.sampled_from(["unsettled", "paused"]))
def test_a_pool_that_is_held_creates_and_deletes_nothing(simulation, how):
    if how == "paused":
        simulation.change(paused=True)
    seen = simulation.snapshot(settled=how != "unsettled")
    todo = plan(seen)
    leaving = {vm.metadata.name for vm in (*seen.members, *seen.strays)}
    assert todo.held
    assert not [each for each in todo.actions if isinstance(each, Create | Delete)]
    assert {each.key.name for each in todo.actions if each.resource is VMS} <= leaving
    if how == "unsettled":
        assert todo.stages == ()


@pytest.mark.long
@given(simulations(replicas=5, spec=vm_spec(disks=["data"]), updateStrategy={"proactive": {}}), st.data())
def test_guarantee_7_an_update_never_makes_more_vms_unavailable_than_allowed(simulation, data):
    simulation.come_to_rest()
    for _ in range(data.draw(st.integers(1, 3))):
        data.draw(edits(simulation, ("template", "disks", "halt")))
        for _ in range(data.draw(st.integers(1, 6))):
            most = situation_of(simulation.snapshot()).most_unavailable
            before = unavailable(simulation)
            simulation.run_pass()
            assert unavailable(simulation) <= max(most, before)
            if data.draw(st.booleans()):
                simulation.live_on()


def unavailable(simulation: PoolSimulation) -> int:
    """The number of members that should be running and have no ready VMI."""
    count = 0
    for name in simulation.members():
        vmi, vm = simulation.vmis.get(name), simulation.vms[name]
        if vm["spec"].get("runStrategy") != "Always":
            continue
        ready = vmi is not None and vmi["status"]["conditions"][0]["status"] == "True"
        leaving = "deletionTimestamp" in vm["metadata"] or "deletionTimestamp" in (vmi or {}).get("metadata", {})
        count += leaving or not ready
    return count


@st.composite
def preserving(draw: st.DrawFn) -> PoolSimulation:
    disks = draw(st.sampled_from([("data",), ("data", "more")]))
    update = draw(st.sampled_from(["opportunistic", "unmanaged"]))
    scale_in = draw(scale_ins(preserve=True))
    return draw(simulations(spec=vm_spec(disks=disks), scaleInStrategy=scale_in, updateStrategy={update: {}}))


@given(preserving(), st.data())
def test_guarantee_8_preserved_disks_are_never_collected_even_after_crashes(simulation, data):
    """P10. The process may die after each write. The next process carries out the old plan or a new plan."""
    ever: set[str] = set()
    stages = plan(simulation.snapshot()).stages
    for _ in range(data.draw(st.integers(1, 4))):
        resisting = data.draw(st.sets(st.sampled_from(["data-0", "data-1", "more-1", "more-2"])))
        simulation.refuses = lambda request, names=resisting: (
            request.is_write and request.resource in (DATA_VOLUMES, PVCS) and request.key.name in names
        )
        for _ in range(data.draw(st.integers(1, 4))):
            stages = data.draw(st.sampled_from([stages, plan(simulation.snapshot()).stages]))
            writes = sum(len(stage.actions) for stage in stages)
            simulation.crash_while_carrying_out(stages, data.draw(st.integers(0, writes)))
            simulation.live_on()
            ever |= set(simulation.claims)
            assert ever == set(simulation.claims)
        data.draw(edits(simulation, GENTLE_EDITS))
    simulation.refuses = lambda request: False
    policy = data.draw(st.sampled_from([None, "Background", "Orphan"]))
    if policy is not None:
        simulation.delete_pool(policy)
    simulation.come_to_rest()
    assert ever <= set(simulation.claims)


@given(lived(), st.sampled_from(["Background", "Foreground", "Orphan"]), st.data())
def test_p6_a_deleted_pool_leaves_no_finalizer_behind_even_after_crashes(simulation, policy, data):
    simulation.server.change(POOLS, simulation.key("web"), {"metadata": {"finalizers": [POOL_FINALIZER]}})
    before = {name: simulation.vms[name]["metadata"]["uid"] for name in simulation.running()}
    preserve = keeps_disks(simulation.snapshot().owner.spec)
    protected = {name for name in before if PROTECT in simulation.vms[name]["metadata"].get("annotations", {})}
    staying = before if policy == "Orphan" else before.keys() & protected if preserve else ()
    simulation.delete_pool(policy)
    for _ in range(data.draw(st.integers(0, 3))):
        if simulation.is_gone:
            break
        simulation.crash_in_a_pass(data.draw(st.integers(0, len(plan(simulation.snapshot()).actions))))
        # In the foreground, the garbage collector deletes a protected VM if it is faster than the controller.
        if data.draw(st.booleans()) and not (policy == "Foreground" and staying):
            simulation.live_on()
    simulation.come_to_rest()
    assert simulation.is_gone
    assert not [name for name, vm in simulation.vms.items() if POOL_FINALIZER in finalizers_of(vm)]
    left = {name: simulation.vms[name]["metadata"]["uid"] for name in before if name in simulation.vms}
    assert left == {name: before[name] for name in staying}, "with kept disks, a protected VM leaves the pool"


@given(lived(), st.data())
def test_a_crash_after_any_write_does_not_change_the_final_state(simulation, data):
    for _ in range(data.draw(st.integers(1, 3))):
        simulation.crash_in_a_pass(data.draw(st.integers(0, len(plan(simulation.snapshot()).actions))))
        if data.draw(st.booleans()):
            simulation.live_on()
    simulation.come_to_rest()
    assert len(simulation.members()) in count_that_should_be(simulation)


@given(lived(), st.data())
def test_a_plan_that_is_carried_out_late_does_no_lasting_harm(simulation, data):
    """A leader was paused or has a stale cache. It carries out a plan that no longer fits the objects."""
    late = plan(simulation.snapshot()).stages
    data.draw(edits(simulation))
    for _ in range(data.draw(st.integers(0, 2))):
        simulation.run_pass()
        simulation.live_on()
    simulation.carry_out(late)
    simulation.come_to_rest()
    assert len(simulation.members()) in count_that_should_be(simulation)
    held = {name for name, vm in simulation.vms.items() if POOL_FINALIZER in finalizers_of(vm)}
    assert held == (set(simulation.members()) if keeps_disks(simulation.snapshot().owner.spec) else set())


@given(st.integers(1, 30), st.data())
def test_a_burst_that_is_sent_again_creates_no_duplicate(wanted, data):
    """After a crash or lost answers, the cache is stale. The whole plan is carried out again."""
    simulation = PoolSimulation(pool(replicas=wanted))
    stages = plan(simulation.snapshot()).stages
    simulation.crash_while_carrying_out(stages, data.draw(st.integers(0, wanted)))
    simulation.carry_out(stages)
    simulation.carry_out(plan(simulation.snapshot()).stages)
    assert simulation.members() == sorted(f"web-{ordinal}" for ordinal in range(wanted))


@given(lived(), STEERING)
def test_steering_annotations_never_change_the_final_number_of_members(simulation, annotations):
    simulation.annotate(**annotations)
    simulation.come_to_rest()
    assert len(simulation.members()) in count_that_should_be(simulation)


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
