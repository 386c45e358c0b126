"""The Events about settings that have no effect."""

import pytest

from controller.pool.plan import plan
from tests.pool_builders import pool, snapshot, vm_spec, vms

BOTH_POLICIES = {"proactive": {"selectionPolicy": {"sortPolicy": "Oldest", "basePolicy": "DescendingOrder"}}}


def notices_of(owner):
    return plan(snapshot(owner, vms(owner, 0, 1, 2))).notices


@pytest.mark.parametrize("strategy", ["scaleInStrategy", "updateStrategy"])
def test_p8_a_base_policy_beside_another_sort_policy_gives_an_event(strategy):
    [notice] = notices_of(pool(**{strategy: BOTH_POLICIES}))
    field = f"spec.{strategy}.proactive.selectionPolicy"
    assert (notice.reason, notice.warning) == ("FieldIgnored", True)
    assert notice.message == f'{field}.basePolicy is "DescendingOrder", but {field}.sortPolicy takes precedence'


def test_p8_a_base_policy_alone_or_with_the_same_sort_policy_needs_no_event():
    for policy in ({"basePolicy": "Random"}, {"basePolicy": "Random", "sortPolicy": "Random"}):
        assert notices_of(pool(scaleInStrategy={"proactive": {"selectionPolicy": policy}})) == ()


UNMATCHED = {"no labels": ({}, "app=web"), "another value": ({"app": "db"}, "app=web")}


@pytest.mark.parametrize(("labels", "missing"), UNMATCHED.values(), ids=UNMATCHED)
def test_p17_a_selector_that_matches_no_pod_gives_an_event_with_the_missing_label(labels, missing):
    [notice] = notices_of(pool(spec=vm_spec(labels=labels)))
    assert (notice.reason, notice.warning) == ("SelectorMatchesNoPod", True)
    assert f"finds no Pod: {missing} of spec.selector" in notice.message
    assert notices_of(pool(spec=vm_spec(labels=labels), generation=2, replicas=3))[0].once == notice.once


def test_p17_an_expression_that_matches_no_pod_gives_an_event_too():
    expression = {"key": "tier", "operator": "In", "values": ["front", "back"]}
    labels = {"app": "web", "tier": "front"}
    owner = pool(selector={"matchLabels": {"app": "web"}, "matchExpressions": [expression]}, labels=labels)
    [notice] = [each for each in notices_of(owner) if each.reason == "SelectorMatchesNoPod"]
    assert "finds no Pod: tier in (back,front) of spec.selector" in notice.message


def test_p17_a_selector_that_matches_the_pods_needs_no_event():
    assert notices_of(pool(spec=vm_spec(labels={"app": "web", "more": "x"}))) == ()
