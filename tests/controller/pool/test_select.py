"""P8: the VMs that may be deleted, and their order."""

from collections import Counter

import pytest

from controller.kubevirt.annotations import DELETION_COST, PROTECT, REMOVE
from controller.pool.members.select import allows, choose_for_removal, in_order
from controller.pool.spec.policies import Selection, Sort
from tests.pool_builders import intent_of, pool, snapshot, vm, vm_spec, vms

OWNER = pool()


def order(machines, *, sort=Sort.UNSTATED, owner=OWNER, selection=None):
    seen = snapshot(owner, machines)
    candidates = choose_for_removal(seen, selection or Selection(sort), seen.members)
    return [each.metadata.name for each in candidates.ranked]


def selection_of(**selectors):
    block = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
    return intent_of(pool(scaleInStrategy=block)).scale_in.selection


def three(**changes):
    return [
        vm(f"web-{ordinal}", owner=OWNER, **{key: values[ordinal] for key, values in changes.items()})
        for ordinal in range(3)
    ]


NUMBERS = {"web-10": {}, "web-9": {}, "web-100": {}, "web-0": {}, "mine": {}}
AGES = {"web-0": {"age_s": 100}, "web-1": {"age_s": 300}, "web-2": {"age_s": 200}, "web-3": {"age_s": 200}}
MARKS = {
    "web-0": {},
    "web-1": {"annotations": {DELETION_COST: "-1"}},
    "web-2": {"annotations": {REMOVE: "true", DELETION_COST: "9"}},
    "web-3": {"annotations": {DELETION_COST: "5"}},
    "web-4": {"annotations": {REMOVE: "yes"}},
    "web-5": {"annotations": {PROTECT: "true", REMOVE: "true"}},
    "web-6": {"annotations": {PROTECT: "false", DELETION_COST: "cheap"}},
}

ORDERS = {
    "ordinals are numbers, and a VM without one is the lowest": (
        Sort.ASCENDING,
        NUMBERS,
        ["mine", "web-0", "web-9", "web-10", "web-100"],
    ),
    "descending": (Sort.DESCENDING, NUMBERS, ["web-100", "web-10", "web-9", "web-0", "mine"]),
    "newest, and then by ordinal": (Sort.NEWEST, AGES, ["web-0", "web-3", "web-2", "web-1"]),
    "oldest, and then by ordinal": (Sort.OLDEST, AGES, ["web-1", "web-2", "web-3", "web-0"]),
    "a mark outweighs the cost, and the cost outweighs the policy": (
        Sort.ASCENDING,
        MARKS,
        ["web-2", "web-1", "web-0", "web-4", "web-6", "web-3"],
    ),
}


@pytest.mark.parametrize(("sort", "machines", "expected"), ORDERS.values(), ids=ORDERS)
def test_the_order_of_deletion(sort, machines, expected):
    found = [vm(name, owner=OWNER, **changes) for name, changes in machines.items()]
    assert order(found, sort=sort) == expected


def test_without_a_policy_vms_that_are_not_ready_come_first():
    """The test has twenty cases. In each case, another one of twenty VMs is not ready."""
    for broken in range(20):
        machines = [vm(f"web-{ordinal}", owner=OWNER, ready=ordinal != broken) for ordinal in range(20)]
        assert order(machines)[0] == f"web-{broken}"


def test_p8_without_a_policy_readiness_outweighs_the_cost_and_with_a_policy_only_the_cost_counts():
    machines = three(ready=[True, True, False], annotations=[{DELETION_COST: "-5"}, None, {DELETION_COST: "9"}])
    assert order(machines) == ["web-2", "web-0", "web-1"]
    assert order(machines, sort=Sort.ASCENDING) == ["web-0", "web-1", "web-2"]


def test_the_random_order_prefers_no_vm():
    """With the policy Random, an unready VM is as likely as a ready VM to be deleted first."""
    firsts = Counter()
    for number in range(400):
        owner = pool(uid=f"uid-{number}")
        machines = [vm(f"web-{ordinal}", owner=owner, ready=ordinal != 0) for ordinal in range(4)]
        firsts[order(machines, sort=Sort.RANDOM, owner=owner)[0]] += 1
    assert all(60 <= firsts[f"web-{ordinal}"] <= 140 for ordinal in range(4))


def test_the_random_order_is_the_same_for_a_retry_and_another_for_a_new_generation():
    machines = vms(OWNER, *range(30))
    assert order(machines, sort=Sort.RANDOM) == order(reversed(machines), sort=Sort.RANDOM)
    changed = pool(generation=2)
    assert order(vms(changed, *range(30)), sort=Sort.RANDOM, owner=changed) != order(machines, sort=Sort.RANDOM)


def test_candidates_count_protected_and_unselected_vms():
    machines = [
        vm("web-0", owner=OWNER, annotations={PROTECT: "true"}),
        vm("web-1", owner=OWNER, spec=vm_spec(labels={"tier": "spare"}), annotations={PROTECT: "true"}),
        vm("web-2", owner=OWNER, spec=vm_spec(labels={"tier": "spare"})),
    ]
    seen = snapshot(OWNER, machines)
    candidates = choose_for_removal(seen, selection_of(labelSelector={"matchLabels": {"tier": "spare"}}), seen.members)
    assert [each.metadata.name for each in candidates.ranked] == ["web-2"]
    assert (len(candidates.protected), candidates.unselected) == (1, 1)


ZONE = [{"key": "zone", "operator": "In", "values": ["a", "b"]}]
NUMBERED = [{"key": "rank", "operator": "Gt", "values": ["5"]}]
SPARE = {"matchLabels": {"tier": "spare"}}

ALLOWED = {
    "no selector": ({}, {}, True),
    "an empty selector": ({"labelSelector": {}}, {}, True),
    "labels of the VMI template": ({"labelSelector": SPARE}, {"labels": {"tier": "spare"}}, True),
    "other labels": ({"labelSelector": SPARE}, {"labels": {"tier": "main"}}, False),
    "a node selector": ({"nodeSelectorRequirementMatcher": ZONE}, {"node_selector": {"zone": "a"}}, True),
    "another zone": ({"nodeSelectorRequirementMatcher": ZONE}, {"node_selector": {"zone": "c"}}, False),
    "no node selector": ({"nodeSelectorRequirementMatcher": ZONE}, {}, False),
    "a greater number": ({"nodeSelectorRequirementMatcher": NUMBERED}, {"node_selector": {"rank": "10"}}, True),
    "no number": ({"nodeSelectorRequirementMatcher": NUMBERED}, {"node_selector": {"rank": "high"}}, False),
    "not greater": ({"nodeSelectorRequirementMatcher": NUMBERED}, {"node_selector": {"rank": "5"}}, False),
    "both given, one matches": (
        {"labelSelector": SPARE, "nodeSelectorRequirementMatcher": ZONE},
        {"labels": {"tier": "spare"}},
        False,
    ),
    "both given, both match": (
        {"labelSelector": SPARE, "nodeSelectorRequirementMatcher": ZONE},
        {"labels": {"tier": "spare"}, "node_selector": {"zone": "b"}},
        True,
    ),
}


@pytest.mark.parametrize(("selectors", "spec", "allowed"), ALLOWED.values(), ids=ALLOWED)
def test_which_vms_the_selectors_allow(selectors, spec, allowed):
    assert allows(selection_of(**selectors), vm(spec=vm_spec(**spec))) is allowed


def test_selectors_are_compared_with_the_vmi_template_and_not_with_the_vm():
    label_on_vm = vm(labels={"tier": "spare"}, spec=vm_spec(labels={}))
    assert not allows(selection_of(labelSelector=SPARE), label_on_vm)
    assert not allows(selection_of(labelSelector=SPARE), vm(spec={}))


def test_annotations_do_not_change_the_order_of_an_update():
    seen = snapshot(OWNER, three(annotations=[None, {REMOVE: "true"}, {DELETION_COST: "-9"}]))
    assert [each.metadata.name for each in in_order(seen, Selection(Sort.ASCENDING), seen.members)] == [
        "web-0",
        "web-1",
        "web-2",
    ]
