"""The guarantees of a pool, as properties of its plans, in worlds where everybody else plays their part."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import POOL_FINALIZER, PROTECT
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.naming import ordinal_of
from controller.pool.plan import plan
from controller.pool.policies import Strategy
from controller.pool.select import allows
from controller.pool.status import next_status, outcome_notices
from controller.runtime.plan import Create, Delete, Done, Patch, RemoveOwnerReference
from controller.runtime.status import status_patch
from tests.builders import NOW
from tests.pool_api import finalizers
from tests.pool_builders import ANOTHER_CONTROLLER, OTHER_FINALIZER, intent_of, pool, snapshot, vm, vm_spec, vms
from tests.pool_strategies import BYSTANDING, GENTLE_EDITS, STEERING, edits, scale_ins, wild_pools, worlds
from tests.pool_worlds import World


@st.composite
def lived(draw: st.DrawFn, **fixed: object) -> World:
    """A world in which users have changed things while the controller was at it, or down."""
    world = draw(worlds(**fixed))
    if draw(st.booleans()):
        world.come_to_rest()
    for _ in range(draw(st.integers(0, 4))):
        draw(edits(world))
        for _ in range(draw(st.integers(0, 2))):
            world.run_pass()
            world.live_on()
    return world


def count_that_should_be(world: World) -> range:
    """How many members a pool at rest may have: what is wanted, or more where nobody may be deleted."""
    seen = world.see()
    intent = intent_of(seen.owner)
    if intent.scale_in.strategy is not Strategy.PROACTIVE:
        return range(intent.wanted, 1000)
    selection = intent.scale_in.selection
    marked = [vm for vm in seen.members if (vm.metadata.annotations or {}).get(PROTECT) == "true"]
    unmovable = [vm for vm in seen.members if vm in marked or not allows(selection, vm)]
    right = max(intent.wanted, len(unmovable))
    return range(right, right + 1)


@given(lived())
def test_from_any_state_a_pool_reaches_what_is_wanted_and_stops_writing(world):
    world.come_to_rest()
    assert len(world.members()) in count_that_should_be(world)
    assert plan(world.see()).stages == ()
    assert status_patch(world.see().owner, next_status(world.see(), ())) is None
    assert world.pool["status"]["replicas"] == len(world.members())


@given(lived())
def test_at_rest_nobody_waits_for_our_finalizer_and_nobody_lost_another(world):
    """Guarantee 9, and P6."""
    had_another = OTHER_FINALIZER in finalizers(world.pool["metadata"])
    world.come_to_rest()
    assert not [name for name, vm in world.vms.items() if "deletionTimestamp" in vm["metadata"]]
    held = {name for name, vm in world.vms.items() if POOL_FINALIZER in finalizers(vm["metadata"])}
    assert held == set(world.members())
    assert (OTHER_FINALIZER in finalizers(world.pool["metadata"])) is had_another


@given(lived(), st.data())
def test_p3_what_is_created_gets_the_smallest_ordinals_that_nobody_has(world, data):
    data.draw(edits(world, ("scale",)))
    taken = {ordinal_of(name, "web") for name in world.vms}
    created = [each.key.name for each in plan(world.see()).actions if isinstance(each, Create) and each.resource is VMS]
    free = [ordinal for ordinal in range(40) if ordinal not in taken]
    assert created == [f"web-{ordinal}" for ordinal in free[: len(created)]]


@given(lived())
def test_p3_creates_never_exceed_what_is_missing(world):
    seen = world.see()
    created = [each for each in plan(seen).actions if isinstance(each, Create) and each.resource is VMS]
    matching = [vm for vm in seen.members if vm.metadata.deletion_timestamp or vm.metadata.labels["app"] == "web"]
    assert len(created) <= max(intent_of(seen.owner).wanted - len(matching), 0)


@given(lived(bystanders=True))
def test_p2_nothing_is_ever_done_to_a_vm_that_is_no_member(world):
    strangers = {name for name, vm in world.vms.items() if vm["metadata"]["labels"].items() >= BYSTANDING.items()}
    world.come_to_rest()
    assert not {each.key.name for each in world.log if each.resource in (VMS, VMIS)} & strangers


@given(lived(), st.randoms(use_true_random=False))
def test_the_same_snapshot_gives_the_same_plan_however_the_cache_lists_it(world, random):
    seen = world.see()
    members, strays, revisions = list(seen.members), list(seen.strays), list(seen.revisions)
    for each in (members, strays, revisions):
        random.shuffle(each)
    assert plan(replace(seen, members=tuple(members), strays=tuple(strays), revisions=tuple(revisions))) == plan(seen)


@given(worlds(scaleInStrategy=None), st.sampled_from(["out", "in", "delete", "release", "detach", "end"]))
def test_p4_p8_a_pass_keeps_to_the_burst_for_each_kind_of_write(world, what):
    """Whatever happens to all of six VMs at once."""
    world.change(replicas=0 if what == "out" else 6)
    world.come_to_rest()
    for name in world.members():
        match what:
            case "delete":
                world.delete_by_user(name)
            case "release":
                world.vms[name]["metadata"]["labels"]["app"] = "debug"
            case "detach":
                world.vms[name]["metadata"]["ownerReferences"] = []
    if what == "end":
        world.delete_pool()
    else:
        world.change(replicas=0 if what == "in" else 6)
    stages = plan(world.see()).stages
    writes = [
        sum(isinstance(each, kind) and each.resource is VMS for each in stage.actions)
        for stage in stages
        for kind in (Create, Delete, Patch)
    ]
    assert max(writes) == world.limits.burst


@given(lived(), st.sampled_from(["unsettled", "paused"]))
def test_a_pool_that_is_held_creates_and_deletes_nothing(world, how):
    if how == "paused":
        world.change(paused=True)
    seen = world.see(settled=how != "unsettled")
    todo = plan(seen)
    leaving = {vm.metadata.name for vm in (*seen.members, *seen.strays)}
    assert todo.held
    assert not [each for each in todo.actions if isinstance(each, Create | Delete)]
    assert {each.key.name for each in todo.actions if each.resource is VMS} <= leaving
    if how == "unsettled":
        assert todo.stages == ()


@given(worlds(replicas=5, spec=vm_spec(disks=["data"]), updateStrategy={"proactive": {}}), st.data())
def test_guarantee_7_an_update_never_makes_more_unavailable_than_it_may(world, data):
    world.come_to_rest()
    for _ in range(data.draw(st.integers(1, 3))):
        data.draw(edits(world, ("template", "disks", "halt")))
        for _ in range(data.draw(st.integers(1, 6))):
            most = intent_of(world.see().owner).most_unavailable
            before = unavailable(world)
            world.run_pass()
            assert unavailable(world) <= max(most, before)
            if data.draw(st.booleans()):
                world.live_on()


def unavailable(world: World) -> int:
    """How many members that should run have no VMI that serves."""
    count = 0
    for name in world.members():
        vmi, vm = world.vmis.get(name), world.vms[name]
        if vm["spec"].get("runStrategy") != "Always":
            continue
        ready = vmi is not None and vmi["status"]["conditions"][0]["status"] == "True"
        leaving = "deletionTimestamp" in vm["metadata"] or "deletionTimestamp" in (vmi or {}).get("metadata", {})
        count += leaving or not ready
    return count


@st.composite
def preserving(draw: st.DrawFn) -> World:
    disks = draw(st.sampled_from([("data",), ("data", "more")]))
    update = draw(st.sampled_from(["opportunistic", "unmanaged"]))
    scale_in = draw(scale_ins(preserve=True))
    return draw(worlds(spec=vm_spec(disks=disks), scaleInStrategy=scale_in, updateStrategy={update: {}}))


@given(preserving(), st.data())
def test_guarantee_8_preserved_disks_are_never_collected_wherever_we_crash(world, data):
    """P10. After each write of ours the process may die; the next one starts from what the server has, or had."""
    ever: set[str] = set()
    stages = plan(world.see()).stages
    for _ in range(data.draw(st.integers(1, 4))):
        resisting = data.draw(st.sets(st.sampled_from(["data-0", "data-1", "more-1", "more-2"])))
        world.refuses = lambda action, names=resisting: (
            isinstance(action, RemoveOwnerReference) and action.key.name in names
        )
        for _ in range(data.draw(st.integers(1, 4))):
            stages = data.draw(st.sampled_from([stages, plan(world.see()).stages]))
            writes = sum(len(stage.actions) for stage in stages)
            world.carry_out(stages, writes=data.draw(st.integers(0, writes)))
            world.live_on()
            ever |= set(world.claims)
            assert ever == set(world.claims)
        data.draw(edits(world, GENTLE_EDITS))
    world.refuses = lambda action: False
    policy = data.draw(st.sampled_from([None, "Background", "Orphan"]))
    if policy is not None:
        world.delete_pool(policy)
    world.come_to_rest()
    assert ever <= set(world.claims)


@given(lived(), st.sampled_from(["Background", "Foreground", "Orphan"]), st.data())
def test_p6_a_deleted_pool_goes_and_leaves_no_finalizer_behind_wherever_we_crash(world, policy, data):
    world.pool["metadata"]["finalizers"] = [POOL_FINALIZER]
    before = {name: world.vms[name]["metadata"]["uid"] for name in world.running()}
    world.delete_pool(policy)
    for _ in range(data.draw(st.integers(0, 3))):
        if world.is_gone:
            break
        stages = plan(world.see()).stages
        writes = sum(len(stage.actions) for stage in stages)
        world.carry_out(stages, writes=data.draw(st.integers(0, writes)))
        if data.draw(st.booleans()):
            world.live_on()
    world.come_to_rest()
    assert world.is_gone
    assert not [name for name, vm in world.vms.items() if POOL_FINALIZER in finalizers(vm["metadata"])]
    left = {name: world.vms[name]["metadata"]["uid"] for name in before if name in world.vms}
    assert left == (before if policy == "Orphan" else {})


@given(lived(), st.data())
def test_a_crash_after_any_write_ends_as_no_crash_does(world, data):
    for _ in range(data.draw(st.integers(1, 3))):
        stages = plan(world.see()).stages
        writes = sum(len(stage.actions) for stage in stages)
        world.carry_out(stages, writes=data.draw(st.integers(0, writes)))
        if data.draw(st.booleans()):
            world.live_on()
    world.come_to_rest()
    assert len(world.members()) in count_that_should_be(world)


@given(lived(), st.data())
def test_a_plan_that_is_carried_out_late_does_no_lasting_harm(world, data):
    """A leader that was stopped for a while, or a cache that lagged behind."""
    late = plan(world.see()).stages
    data.draw(edits(world))
    for _ in range(data.draw(st.integers(0, 2))):
        world.run_pass()
        world.live_on()
    world.carry_out(late)
    world.come_to_rest()
    assert len(world.members()) in count_that_should_be(world)
    held = {name for name, vm in world.vms.items() if POOL_FINALIZER in finalizers(vm["metadata"])}
    assert held == set(world.members())


@given(st.integers(1, 30), st.data())
def test_a_burst_that_is_sent_again_makes_no_twin(wanted, data):
    """The answers were lost or the process died, and the cache is stale: the plan is carried out from the start."""
    world = World(pool(replicas=wanted))
    stages = plan(world.see()).stages
    world.carry_out(stages, writes=data.draw(st.integers(0, wanted)))
    world.carry_out(stages)
    world.carry_out(plan(world.see()).stages)
    assert world.members() == sorted(f"web-{ordinal}" for ordinal in range(wanted))


@given(lived(), STEERING)
def test_steering_annotations_never_keep_a_pool_from_its_number(world, annotations):
    world.annotate(**annotations)
    world.come_to_rest()
    assert len(world.members()) in count_that_should_be(world)


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
