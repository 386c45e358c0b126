"""R1, R2, R7, R8, and the order of the stages of a plan. For R4 to R6, see test_scale and test_ranking."""

import msgspec
import pytest

from controller.apimachinery.label_selectors import SelectorRequirement
from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from controller.replicaset.plan import plan
from controller.runtime.actions import Confirm, Create, Delete, Patch
from tests.builders import members, replicaset, snapshot, vmi
from tests.plans import names

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
    "no template spec": (
        replicaset(template=VMITemplate(TemplateMeta(labels={"myvmi": "myvmi"}))),
        "spec.template.spec is missing",
    ),
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


def test_r2_a_member_whose_labels_no_longer_match_is_released_and_replaced():
    owner = replicaset(replicas=2)
    todo = plan(snapshot(owner, [*members(owner, 1), vmi("stray", owner=owner, labels={"myvmi": "debug"})]))
    assert [[type(action) for action in stage.actions] for stage in todo.stages] == [[Patch], [Patch], [Create]]
    assert names(todo, Patch) == ["testreplicaset", "stray"]
    assert msgspec.json.decode(todo.actions[1].body)["metadata"]["ownerReferences"] == []


def test_r2_a_finished_member_whose_labels_do_not_match_is_released_and_not_deleted():
    owner = replicaset(replicas=0)
    todo = plan(snapshot(owner, [vmi("stray", owner=owner, labels={}, phase="Failed")]))
    assert [type(action) for action in todo.actions] == [Patch, Patch]


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
