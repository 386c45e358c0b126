"""P8: scaling in proactively. Who may go, who goes first, and what is on its way out already."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.herd import Herd, eventually, stays
from tests.integration.ranch import BEHAVIOR, Ranch, uids, vm_template

pytestmark = pytest.mark.cluster

HALTED: dict[str, Any] = {"runStrategy": "Halted"}
A_SECOND = 1.1
"""Creation times are whole seconds."""


def proactive(**policy: Any) -> dict[str, Any]:
    return {"proactive": {"selectionPolicy": policy}}


def ordinals(ranch: Ranch) -> dict[str, set[int]]:
    """The ordinals of the VMs that stay, by the pool that has them."""
    found: dict[str, set[int]] = {pool: set() for pool in ranch.pool_statuses()}
    for name, vm in ranch.vms().items():
        for owner in vm["metadata"].get("ownerReferences") or ():
            if "deletionTimestamp" not in vm["metadata"]:
                found[owner["name"]].add(int(name.rpartition("-")[2]))
    return found


def numbers(ranch: Ranch) -> set[int]:
    """How many VMs stay in each pool; one number where all pools have the same."""
    return {len(each) for each in ordinals(ranch).values()}


def leaving(ranch: Ranch) -> set[str]:
    return {name for name, vm in ranch.vms().items() if "deletionTimestamp" in vm["metadata"]}


SORTED = {"AscendingOrder": {2, 3}, "DescendingOrder": {0, 1}, "Newest": {0, 3}, "Oldest": {1, 2}}
"""Two of four stay, of which 0 and 3 are the oldest, and 2 is the newest."""


def test_p8_each_sort_policy_has_its_own_order(ranch: Ranch) -> None:
    names = {policy: policy.lower() for policy in SORTED}

    def wait_for(*wanted: int) -> None:
        eventually(lambda: ordinals(ranch) == {name: set(wanted) for name in names.values()})

    for policy, name in names.items():
        ranch.make_vm(f"{name}-1", labels={"app": "other"}, template=vm_template(**HALTED))
        ranch.make_vm(f"{name}-2", labels={"app": "other"}, template=vm_template(**HALTED))
        ranch.make_pool(2, name=name, template=vm_template(**HALTED), scaleInStrategy=proactive(sortPolicy=policy))
    wait_for(0, 3)
    for replicas, comes in ((3, 1), (4, 2)):
        time.sleep(A_SECOND)
        for name in names.values():
            ranch.delete_vm(f"{name}-{comes}")
        eventually(lambda number=comes: not ranch.vms().keys() & {f"{name}-{number}" for name in names.values()})
        for name in names.values():
            ranch.scale(replicas, name=name)
        wait_for(0, 3, *range(1, comes + 1))
    for name in names.values():
        ranch.scale(2, name=name)
    eventually(lambda: numbers(ranch) == {2})
    stayed = ordinals(ranch)
    assert {policy: stayed[name] for policy, name in names.items()} == SORTED


def test_p8_at_random_not_always_the_same_ordinal_goes(ranch: Ranch) -> None:
    names = [f"pool-{number}" for number in range(8)]
    for name in names:
        ranch.make_pool(4, name=name, template=vm_template(**HALTED), scaleInStrategy=proactive(sortPolicy="Random"))
    eventually(lambda: numbers(ranch) == {4})
    for name in names:
        ranch.scale(3, name=name)
    eventually(lambda: numbers(ranch) == {3})
    # Eight times the same by chance: once in 16,384 runs.
    assert len(set(map(frozenset, ordinals(ranch).values()))) > 1


def test_p8_by_default_a_vm_that_is_not_ready_goes_before_one_that_is(ranch: Ranch) -> None:
    names = [f"pool-{number}" for number in range(5)]
    for name in names:
        ranch.make_pool(3, name=name)
    for name in names:
        ranch.wait_ready(3, name=name)
        ranch.change_vmi(f"{name}-1", {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}})
    eventually(lambda: {status.get("readyReplicas") for status in ranch.pool_statuses().values()} == {2})
    for name in names:
        ranch.scale(2, name=name)
    eventually(lambda: numbers(ranch) == {2})
    # All five by chance: once in 243 runs.
    assert ordinals(ranch) == {name: {0, 2} for name in names}


LABELS = {"labelSelector": {"matchLabels": {"tier": "batch"}}}
NODES = {"nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
SELECTORS: dict[str, tuple[dict[str, Any], set[int]]] = {
    "labels": (LABELS, {2, 3}),
    "nodes": (NODES, {0, 3}),
    "both": ({**LABELS, **NODES}, {0, 2, 3}),
}


def test_p8_where_too_few_match_only_those_go_and_an_event_says_how_many_stay(ranch: Ranch, rancher: Herd) -> None:
    labelled = {"metadata": {"labels": {"tier": "batch"}}}
    placed = {"spec": {"nodeSelector": {"zone": "b"}}}
    for name, (selectors, _) in SELECTORS.items():
        strategy = proactive(selectors=selectors, sortPolicy="DescendingOrder")
        ranch.make_pool(4, name=name, template=vm_template(**HALTED), scaleInStrategy=strategy)
    ranch.wait_for_vms(*(f"{name}-{ordinal}" for name in SELECTORS for ordinal in range(4)), ready=False)
    for name in SELECTORS:
        for ordinal, change in ((0, labelled), (1, labelled | placed), (2, placed)):
            ranch.change_vm(f"{name}-{ordinal}", {"spec": {"template": change}})
        # Labels of the VM itself are none of its template.
        ranch.change_vm(f"{name}-3", {"metadata": {"labels": {"tier": "batch", "zone": "b"}}})
    ranch.wait_until_seen(name="labels")
    for name in SELECTORS:
        ranch.scale(0, name=name)
    stayed = {name: stays_of for name, (_, stays_of) in SELECTORS.items()}
    eventually(lambda: ordinals(ranch) == stayed)
    once = dict.fromkeys(SELECTORS, 1)
    eventually(lambda: ranch.told("ScaleInIncomplete") == once)
    stays(lambda: ordinals(ranch) == stayed, for_s=1.0)
    assert ranch.told("ScaleInIncomplete") == once
    left_over = {
        event["involvedObject"]["name"]: int(event["message"].split()[0])
        for event in ranch.events()
        if event["reason"] == "ScaleInIncomplete"
    }
    assert left_over == {name: len(left) for name, left in stayed.items()}
    assert rancher.working
    ranch.change_pool({"spec": {"scaleInStrategy": None}}, name="both")
    eventually(lambda: ordinals(ranch)["both"] == set(), what="the rest goes when the selectors do")


def test_p8_the_count_that_is_to_go_is_filled_from_those_that_match(ranch: Ranch) -> None:
    strategy = proactive(selectors=LABELS, sortPolicy="AscendingOrder")
    ranch.make_pool(4, template=vm_template(**HALTED), scaleInStrategy=strategy)
    ranch.wait_for_ordinals(0, 1, 2, 3, ready=False)
    for ordinal in (1, 2, 3):
        ranch.change_vm(f"pool-{ordinal}", {"spec": {"template": {"metadata": {"labels": {"tier": "batch"}}}}})
    ranch.wait_until_seen()
    ranch.scale(2)
    ranch.wait_for_ordinals(0, 3, ready=False)
    assert not ranch.told("ScaleInIncomplete")


def test_p8_marks_come_before_the_policy_remove_then_cost_and_protected_ones_never_go(ranch: Ranch) -> None:
    strategy = proactive(sortPolicy="AscendingOrder")
    ranch.make_pool(6, template=vm_template(**HALTED), scaleInStrategy=strategy)
    ranch.wait_for_ordinals(*range(6), ready=False)
    ranch.mark_vm("pool-0", protect="true", remove="true", deletion_cost="-9")
    ranch.mark_vm("pool-1", deletion_cost="5")
    ranch.mark_vm("pool-4", deletion_cost="-5")
    ranch.mark_vm("pool-5", remove="true", deletion_cost="9")
    ranch.wait_until_seen()
    left = {0, 1, 2, 3, 4, 5}
    for replicas, goes in ((5, 5), (4, 4), (3, 2), (2, 3), (1, 1)):
        ranch.scale(replicas)
        left.remove(goes)
        eventually(lambda wanted=frozenset(left): ordinals(ranch)["pool"] == wanted, what=f"{goes} goes")
    ranch.scale(0)
    eventually(lambda: ranch.told("ProtectedFromDeletion")["pool"] == 1, what="an Event says why one stays")
    stays(lambda: ordinals(ranch)["pool"] == {0}, for_s=0.7)
    ranch.mark_vm("pool-0", protect="false")
    eventually(lambda: not ranch.vms(), what="it goes as soon as it may")


def test_p8_vms_on_their_way_out_count_towards_those_that_are_to_go(ranch: Ranch, rancher: Herd) -> None:
    ranch.make_pool(6, scaleInStrategy=proactive(sortPolicy="DescendingOrder"))
    before = uids(ranch.wait_for_ordinals(*range(6)))
    for name in before:
        ranch.hold_vm(name)
    ranch.delete_vm("pool-0")
    ranch.wait_until_seen()
    ranch.scale(4)
    eventually(lambda: leaving(ranch) == {"pool-0", "pool-5"}, what="one goes beside the one that its user deleted")
    ranch.scale(1)
    eventually(lambda: leaving(ranch) == before.keys() - {"pool-1"})
    ranch.scale(4)
    eventually(lambda: ranch.pool_status().get("observedGeneration") == ranch.pool()["metadata"]["generation"])
    stays(lambda: uids(ranch.vms()) == before and ordinals(ranch)["pool"] == {1}, what="nobody comes or goes meanwhile")
    ranch.scale(0)
    eventually(lambda: leaving(ranch) == before.keys())
    ranch.scale(3)
    eventually(lambda: ranch.pool_status().get("observedGeneration") == ranch.pool()["metadata"]["generation"])
    assert rancher.working
    for name in before:
        ranch.let_vm_go(name)
    after = uids(ranch.wait_for_ordinals(0, 1, 2))
    ranch.wait_ready(3)
    assert not set(after.values()) & set(before.values())
    assert ranch.vms_deleted() == {f"pool-{ordinal}": 1 for ordinal in range(1, 6)}, "nobody was deleted twice"
    assert sum(ranch.vms_created().values()) == 6 + 3
