"""The guarantees of a replica set, as properties of its plans."""

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement
from controller.kubevirt.annotations import is_protected
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active, is_ready
from controller.replicaset.intent import Rollout
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status, outcome_notices
from controller.replicaset.template import is_updated
from controller.replicaset.traits import group_vmis
from controller.runtime.actions import Confirm, Create, Delete, Patch
from controller.runtime.members.groups import one_by_one
from controller.runtime.status import status_patch
from informers.meta import controller_of
from tests.builders import limits_of, replicaset, snapshot, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.strategies import populations, replicasets, snapshots, template_of, wild_replicasets

PASSES = 60
"""The maximum number of reconciliations. A set has at most 12 VMIs. Each VMI is replaced once, and a reconciliation has
at least one write.
"""


@st.composite
def simulations(draw: st.DrawFn, *, rolling: bool | None = None) -> ReplicaSetSimulation:
    owner = draw(replicasets(rolling=rolling))
    return ReplicaSetSimulation.of(owner, draw(populations(owner)), burst=draw(st.integers(1, 6)))


def come_to_rest(simulation: ReplicaSetSimulation) -> None:
    for _ in range(PASSES):
        tried = simulation.run_pass()
        simulation.live_on()
        todo = plan(simulation.snapshot())
        if not tried and not todo.actions and todo.requeue_after_s is None:
            return
        if not tried:
            simulation.advance(todo.requeue_after_s or 0)
    raise AssertionError(f"still writing after {PASSES} passes: {plan(simulation.snapshot())}")


def protected(vmis) -> int:
    return sum(is_protected(vmi.metadata) for vmi in vmis)


@given(simulations())
def test_from_any_state_a_set_reaches_the_wanted_number_and_stops_writing(simulation):
    """Guarantee 1: the set reaches the wanted number of active VMIs, or more if VMIs are protected."""
    come_to_rest(simulation)
    wanted = simulation.owner.spec.replicas
    assert len(simulation.active) == max(wanted, protected(simulation.active))
    simulation.run_pass()
    assert plan(simulation.snapshot()).stages == ()
    assert status_patch(simulation.owner, next_status(simulation.snapshot(), ())) is None
    assert simulation.owner.status.replicas == len(simulation.active)
    assert simulation.owner.status.ready_replicas == len(simulation.active)


@given(simulations(rolling=True))
def test_r14_a_rollout_leaves_only_protected_vmis_of_older_templates(simulation):
    come_to_rest(simulation)
    current = template_of(simulation.owner)
    older = [vmi for vmi in simulation.active if not is_updated(vmi, current)]
    assert len(older) == protected(older)


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_the_objects_in_the_cache(seen, random):
    members, orphans = list(seen.members), list(seen.orphans)
    random.shuffle(members)
    random.shuffle(orphans)
    assert plan(replace(seen, members=group_vmis(members), orphans=tuple(orphans))) == plan(seen)


@given(st.booleans(), st.data())
def test_a_plan_from_groups_is_the_plan_from_single_members(settled, data):
    """Each member alone in its group gives the plan of a walk over all members."""
    seen = data.draw(snapshots(settled=settled))
    if data.draw(st.booleans()):
        selector = LabelSelector(match_expressions=(SelectorRequirement("kubevirt.io/nodeName", "NotIn", ("node-1",)),))
        seen = replace(seen, owner=replace(seen.owner, spec=replace(seen.owner.spec, selector=selector)))
    labels = data.draw(st.lists(st.sampled_from(["node-1", "node-2"]), min_size=len(seen.members)))
    vmis = [_on_node(each, node) for each, node in zip(seen.members, labels, strict=False)]
    seen = replace(seen, members=group_vmis(vmis))
    alone = replace(seen, members=one_by_one(vmis))
    assert plan(alone) == plan(seen)
    assert next_status(alone, ()) == next_status(seen, ())


def _on_node(each: VirtualMachineInstance, node: str) -> VirtualMachineInstance:
    labels = {**(each.metadata.labels or {}), "kubevirt.io/nodeName": node}
    return replace(each, metadata=replace(each.metadata, labels=labels))


@given(snapshots())
def test_only_unprotected_members_that_are_not_terminating_are_deleted(seen):
    """G3 and R6: the controller deletes only members that are neither protected nor terminating."""
    members = {vmi.metadata.uid: vmi for vmi in seen.members}
    deletes = [action for action in plan(seen).actions if isinstance(action, Delete)]
    assume(deletes)
    for action in deletes:
        victim = members[action.uid]
        assert victim.metadata.key == action.key
        assert victim.metadata.deletion_timestamp is None
        assert not is_protected(victim.metadata)


@given(snapshots())
def test_r4_r6_r7_a_pass_keeps_to_the_burst_and_never_creates_and_scales_in(seen):
    kinds = Counter(type(action) for action in plan(seen).actions)
    assert kinds[Create] <= seen.burst
    assert kinds[Delete] <= seen.burst


@given(snapshots())
def test_guarantee_2_creates_never_exceed_what_is_missing(seen):
    created = sum(isinstance(action, Create) for action in plan(seen).actions)
    active = sum(is_active(vmi) for vmi in seen.members)
    released = sum(isinstance(action, Patch) for action in plan(seen).actions)
    rollout = limits_of(seen.owner, seen.owner.spec.replicas)
    most = seen.owner.spec.replicas + (rollout.max_surge if rollout is not None else 0)
    assert created <= max(most - active + released, 0)


@given(snapshots())
def test_r5_each_created_name_is_unique_and_free(seen):
    names = [action.key.name for action in plan(seen).actions if isinstance(action, Create)]
    assert len(set(names)) == len(names)
    assert not any(name in seen.taken for name in names)


@given(snapshots())
def test_r2_each_claim_is_made_once_and_is_for_an_orphan_or_a_member(seen):
    patched = [action.key for action in plan(seen).actions if isinstance(action, Patch) and not action.is_note]
    assert len(set(patched)) == len(patched)
    assert set(patched) <= {vmi.metadata.key for vmi in (*seen.members, *seen.orphans)}


@given(snapshots())
def test_r8_a_paused_set_plans_the_same_claims_and_nothing_else(seen):
    todo = plan(replace(seen, owner=replace(seen.owner, spec=replace(seen.owner.spec, paused=True))))
    claims = [action for action in plan(seen).actions if isinstance(action, Confirm | Patch)]
    assert list(todo.actions) == claims
    assert todo.held == "paused"


@given(simulations())
def test_r2_a_vmi_of_another_owner_is_never_changed(simulation):
    strangers = {
        vmi.metadata.name
        for vmi in simulation.server.objects(VMIS)
        if (by := controller_of(vmi.metadata)) is not None and by.uid != simulation.owner.metadata.uid
    }
    come_to_rest(simulation)
    assert not strangers & {action.key.name for action in simulation.process.actions}


@given(simulations(), st.data())
def test_guarantee_5_a_crash_after_any_write_does_not_change_the_final_state(simulation, data):
    """The process dies during a reconciliation, before it writes the status. The next process plans from the state of
    the server.
    """
    for _ in range(data.draw(st.integers(1, 3))):
        stages = plan(simulation.snapshot()).stages
        writes = sum(len(stage.actions) for stage in stages)
        simulation.crash_while_carrying_out(stages, data.draw(st.integers(0, writes)))
        if data.draw(st.booleans()):
            simulation.live_on()
    come_to_rest(simulation)
    assert len(simulation.active) == max(simulation.owner.spec.replicas, protected(simulation.active))


@given(st.integers(1, 30), st.data())
def test_guarantee_5_a_burst_that_is_sent_again_creates_no_duplicate(wanted, data):
    """After a crash or lost answers, the cache is stale. The whole plan is carried out again."""
    simulation = ReplicaSetSimulation.of(replicaset(replicas=wanted))
    stages = plan(simulation.snapshot()).stages
    simulation.crash_while_carrying_out(stages, data.draw(st.integers(0, wanted)))
    simulation.carry_out(stages)
    simulation.carry_out(plan(simulation.snapshot()).stages)
    assert len(simulation.server.documents(VMIS)) == wanted


@given(st.integers(1, 30), st.data())
def test_guarantee_5_a_cache_that_shows_only_a_part_of_a_burst_causes_no_duplicate(wanted, data):
    owner = replicaset(replicas=wanted)
    simulation = ReplicaSetSimulation.of(owner)
    simulation.carry_out(plan(simulation.snapshot()).stages)
    shown = data.draw(st.sets(st.sampled_from(sorted(simulation.server.documents(VMIS)))))
    stale = snapshot(owner, [vmi for vmi in simulation.server.objects(VMIS) if vmi.metadata.name in shown])
    simulation.carry_out(plan(stale).stages)
    assert len(simulation.server.documents(VMIS)) == wanted


@given(snapshots(rolling=True))
def test_r14_a_rollout_makes_no_more_vmis_unready_than_allowed(seen):
    """A plan deletes at most as many ready VMIs as `maxUnavailable` permits."""
    active = [vmi for vmi in seen.members if is_active(vmi) and vmi.metadata.labels["myvmi"] == "myvmi"]
    owner = replace(seen.owner, spec=replace(seen.owner.spec, replicas=len(active)))
    seen = replace(seen, owner=owner, members=group_vmis(active), orphans=())
    rollout = limits_of(owner, len(active))
    assert isinstance(rollout, Rollout)
    victims = {action.uid for action in plan(seen).actions if isinstance(action, Delete)}
    ready = [vmi for vmi in active if is_ready(vmi)]
    going = [vmi for vmi in ready if vmi.metadata.uid in victims]
    assert len(going) <= max(rollout.max_unavailable - (len(active) - len(ready)), 0)


@settings(max_examples=300)
@given(wild_replicasets, st.booleans())
def test_r1_any_set_that_decodes_gets_a_plan_and_a_status(owner, settled):
    vmis = [vmi("member", owner=owner), vmi("orphan"), vmi("failed", owner=owner, phase="Failed")]
    seen = snapshot(owner, vmis, settled=settled)
    todo = plan(seen)
    assert todo == plan(seen)
    if todo.held.startswith("invalid"):
        assert todo.stages == ()
    simulation = ReplicaSetSimulation.of(owner, vmis)
    outcomes = simulation.carry_out(todo.stages)
    outcome_notices(outcomes)
    status_patch(owner, next_status(simulation.snapshot(), outcomes))
