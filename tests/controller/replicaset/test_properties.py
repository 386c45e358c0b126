"""The guarantees of a replica set, as properties of its plans."""

from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import is_protected
from controller.kubevirt.vmis import is_active, is_ready
from controller.replicaset.intent import Rollout
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status, outcome_notices
from controller.replicaset.traits import group_vmis
from controller.runtime.actions import Confirm, Create, Delete, Patch
from controller.runtime.status import status_patch
from tests.builders import limits_of, snapshot, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.strategies import snapshots, wild_replicasets


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
def test_r8_a_paused_set_plans_the_same_claims_and_nothing_else(seen):
    todo = plan(replace(seen, owner=replace(seen.owner, spec=replace(seen.owner.spec, paused=True))))
    claims = [action for action in plan(seen).actions if isinstance(action, Confirm | Patch)]
    assert list(todo.actions) == claims
    assert todo.held == "paused"


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
