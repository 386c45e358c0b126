"""R1, R2, R7, R8, the order of the stages of a plan, and the guarantees of a set as properties of its plans."""

from collections import Counter

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.apimachinery.label_selectors import SelectorRequirement
from controller.kubevirt.annotations import is_protected
from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from controller.kubevirt.vmis import is_active, is_ready
from controller.replicaset.intent import Rollout
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status, outcome_notices
from controller.replicaset.traits import group_vmis
from controller.runtime.actions import Confirm, Create, Delete, Patch
from controller.runtime.status import status_patch
from tests.builders import limits_of, members, replicaset, snapshot, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.plans import names
from tests.strategies import snapshots, wild_replicasets

LABELLED = VMITemplate(TemplateMeta(labels={"myvmi": "myvmi"}))
INVALID = {
    "no template": (replicaset(template=None), "spec.template is missing"),
    "no selector": (replicaset(match_labels=None), "spec.selector is empty"),
    "empty selector": (replicaset(match_labels={}, match_expressions=()), "spec.selector is empty"),
    "a selector that does not parse": (
        replicaset(match_expressions=(SelectorRequirement("a", "Gt"),)),
        "spec.selector.matchExpressions[0].operator",
    ),
    "no template metadata": (replicaset(template=VMITemplate(None)), "spec.template.metadata.labels is empty"),
    "no template labels": (replicaset(template_labels={}), "spec.template.metadata.labels is empty"),
    "labels that the selector does not match": (replicaset(template_labels={"a": "b"}), "does not match"),
    "no template spec": (replicaset(template=LABELLED), "spec.template.spec is missing"),
    "a null template spec": (replicaset(spec=b"null"), "spec.template.spec is missing"),
    "a quantity that Kubernetes does not read": (
        replicaset(spec=b'{"domain":{"cpu":{"cores":1},"memory":{"guest":"2 gb"}}}'),
        'spec.template.spec.domain.memory.guest is "2 gb": it must be a quantity such as 2Gi',
    ),
    "negative replicas": (replicaset(replicas=-1), "spec.replicas is -1"),
}


@pytest.mark.parametrize(("owner", "reason"), INVALID.values(), ids=INVALID)
def test_r1_an_invalid_set_changes_no_vmi_and_one_notice_per_generation_reports_it(owner, reason):
    todo = plan(snapshot(owner, [*members(owner, 5), vmi("orphan"), vmi("done", owner=owner, phase="Failed")]))
    assert todo.stages == ()
    assert reason in todo.held
    assert todo.held.startswith("invalid: ")
    assert [(n.reason, n.warning, n.once) for n in todo.notices] == [("InvalidSpec", True, "generation-1")]
    assert reason in todo.notices[0].message
    assert todo.requeue_after_s is None


BLOCKED = {
    "r8 r9 paused and unsettled": (replicaset(paused=True), False, "own writes"),
    "r2 r15 being deleted": (replicaset(deleting=True), True, "being deleted"),
    "r9 unsettled": (replicaset(), False, "own writes"),
    "r15 being deleted comes before invalid": (replicaset(deleting=True, template=None), True, "being deleted"),
}


@pytest.mark.parametrize(("owner", "settled", "reason"), BLOCKED.values(), ids=BLOCKED)
@pytest.mark.parametrize("number", [0, 9])
def test_nothing_is_written_while_a_set_is_deleted_or_unsettled(owner, settled, reason, number):
    vmis = [*members(owner, number), vmi("orphan"), vmi("done", owner=owner, phase="Failed")]
    todo = plan(snapshot(owner, [*vmis, vmi("stray", owner=owner, labels={})], settled=settled))
    assert todo.stages == ()
    assert todo.notices == ()
    assert reason in todo.held


def test_r2_an_orphan_is_adopted_after_the_set_was_confirmed_and_counts_at_once():
    owner = replicaset(replicas=3)
    todo = plan(snapshot(owner, [*members(owner, 1), vmi("orphan")]))
    assert [[type(action) for action in stage.actions] for stage in todo.stages] == [[Confirm], [Patch], [Create]]
    assert names(todo, Confirm) == ["testreplicaset"]
    assert names(todo, Patch) == ["orphan"]


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_r2_a_member_whose_labels_no_longer_match_is_released_and_replaced_and_not_deleted(phase):
    owner = replicaset(replicas=2)
    stray = vmi("stray", owner=owner, labels={"myvmi": "debug"}, phase=phase)
    todo = plan(snapshot(owner, [*members(owner, 1), stray]))
    assert [[type(action) for action in stage.actions] for stage in todo.stages] == [[Patch], [Patch], [Create]]
    assert names(todo, Patch) == ["testreplicaset", "stray"]
    assert msgspec.json.decode(todo.actions[1].body)["metadata"]["ownerReferences"] == []


def test_r3_r7_spent_members_are_replaced_first_and_then_deleted():
    owner = replicaset(replicas=3)
    spent = [
        vmi("a-unknown", owner=owner, phase="Unknown"),
        vmi("failed", owner=owner, phase="Failed"),
        vmi("lost", owner=owner, ready=False, reason="PodTerminating"),
        vmi("terminating", owner=owner, phase="Failed", deleting=True),
    ]
    todo = plan(snapshot(owner, [*members(owner, 1), *spent]))
    assert [[type(action) for action in stage.actions] for stage in todo.stages] == [[Create] * 2, [Delete] * 3]
    assert [(each.key.name, each.why) for each in todo.actions if isinstance(each, Delete)] == [
        ("failed", "finished: Failed"),
        ("a-unknown", "its state is unknown"),
        ("lost", "its Pod is terminating"),
    ]
    assert not any(each.owner_uid for each in todo.actions if isinstance(each, Delete)), "one that changes is spared"


def test_r7_cleaning_up_and_scaling_in_share_the_burst():
    owner = replicaset(replicas=0)
    spent = [vmi(f"failed-{n}", owner=owner, phase="Failed") for n in range(5)]
    todo = plan(snapshot(owner, [*members(owner, 2), *spent], burst=4))
    assert names(todo, Delete) == ["vm-0", "vm-1", "failed-0", "failed-1"]


ORPHANS = 10_000


def test_r2_a_pass_adopts_at_most_one_burst_and_counts_all_orphans_that_match() -> None:
    orphans = [vmi(f"orphan-{number:05}") for number in range(ORPHANS)]
    result = plan(snapshot(replicaset(replicas=ORPHANS + 3), orphans, burst=250))
    patches = [action for action in result.actions if isinstance(action, Patch)]
    creates = [action for action in result.actions if isinstance(action, Create)]
    assert (len(patches), len(creates)) == (250, 3)
    assert [type(action) for action in result.actions[:1]] == [Confirm]
    assert "9750 more adoptions" in result.held


def test_r2_no_vmi_is_deleted_while_orphans_wait_for_their_adoption() -> None:
    owner = replicaset(replicas=1)
    orphans = [vmi(f"orphan-{number}") for number in range(20)]
    members = [vmi(f"member-{number}", owner=owner) for number in range(5)]
    first = plan(snapshot(owner, [*members, *orphans], burst=10))
    assert not [action for action in first.actions if isinstance(action, Delete)]
    last = plan(snapshot(owner, [*members, *orphans[:10]], burst=10))
    assert len([action for action in last.actions if isinstance(action, Delete)]) > 0


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
