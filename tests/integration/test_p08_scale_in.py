"""P8: proactive scale-in. Which VMs may be deleted, in which order, and how terminating VMs count."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.controller_process import ControllerProcess, eventually, stays
from tests.integration.pool_namespace import BEHAVIOR, PoolNamespace, vm_template

pytestmark = pytest.mark.cluster

HALTED: dict[str, Any] = {"runStrategy": "Halted"}


def proactive(**policy: Any) -> dict[str, Any]:
    return {"proactive": {"selectionPolicy": policy}}


def ordinals(pools: PoolNamespace) -> dict[str, set[int]]:
    """The ordinals of the VMs that are not terminating, by pool."""
    found: dict[str, set[int]] = {pool: set() for pool in pools.pool_statuses()}
    for name, vm in pools.vms().items():
        for owner in vm["metadata"].get("ownerReferences") or ():
            if "deletionTimestamp" not in vm["metadata"]:
                found[owner["name"]].add(int(name.rpartition("-")[2]))
    return found


def numbers(pools: PoolNamespace) -> set[int]:
    """For each pool, the number of VMs that are not terminating. The result is a set, so equal numbers appear once."""
    return {len(each) for each in ordinals(pools).values()}


SORTED = {"AscendingOrder": {2, 3}, "DescendingOrder": {0, 1}, "Newest": {0, 3}, "Oldest": {1, 2}}
"""A pool is scaled in from four VMs to two. For each policy, the ordinals of the remaining VMs. The VMs 0 and 3 are the
oldest, and 2 is the newest.
"""


def test_p8_by_default_vms_that_are_not_ready_are_deleted_first(pools: PoolNamespace) -> None:
    names = [f"pool-{number}" for number in range(5)]
    for name in names:
        pools.make_pool(3, name=name)
    for name in names:
        pools.wait_ready(3, name=name)
        pools.change_vmi(f"{name}-1", {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}})
    eventually(lambda: {status.get("readyReplicas") for status in pools.pool_statuses().values()} == {2})
    for name in names:
        pools.scale(2, name=name)
    eventually(lambda: numbers(pools) == {2})
    # The chance that all five choices are right is 1 in 243.
    assert ordinals(pools) == {name: {0, 2} for name in names}


LABELS = {"labelSelector": {"matchLabels": {"tier": "batch"}}}
NODES = {"nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
SELECTORS: dict[str, tuple[dict[str, Any], set[int]]] = {
    "labels": (LABELS, {2, 3}),
    "nodes": (NODES, {0, 3}),
    "both": ({**LABELS, **NODES}, {0, 2, 3}),
}


def test_p8_if_too_few_vms_match_only_these_are_deleted_and_an_event_counts_the_rest(
    pools: PoolNamespace, pool_controller: ControllerProcess
) -> None:
    labelled = {"metadata": {"labels": {"tier": "batch"}}}
    placed = {"spec": {"nodeSelector": {"zone": "b"}}}
    for name, (selectors, _) in SELECTORS.items():
        strategy = proactive(selectors=selectors, sortPolicy="DescendingOrder")
        pools.make_pool(4, name=name, template=vm_template(**HALTED), scaleInStrategy=strategy)
    pools.wait_for_vms(*(f"{name}-{ordinal}" for name in SELECTORS for ordinal in range(4)), ready=False)
    for name in SELECTORS:
        for ordinal, change in ((0, labelled), (1, labelled | placed), (2, placed)):
            pools.change_vm(f"{name}-{ordinal}", {"spec": {"template": change}})
        # The selector applies to the labels of the VM's template, not to those of the VM.
        pools.change_vm(f"{name}-3", {"metadata": {"labels": {"tier": "batch", "zone": "b"}}})
    pools.wait_until_seen(name="labels")
    for name in SELECTORS:
        pools.scale(0, name=name)
    stayed = {name: stays_of for name, (_, stays_of) in SELECTORS.items()}
    eventually(lambda: ordinals(pools) == stayed)
    once = dict.fromkeys(SELECTORS, 1)
    eventually(lambda: pools.told("ScaleInIncomplete") == once)
    stays(lambda: ordinals(pools) == stayed, for_s=1.0)
    assert pools.told("ScaleInIncomplete") == once
    left_over = {
        event["involvedObject"]["name"]: int(event["message"].split()[0])
        for event in pools.events()
        if event["reason"] == "ScaleInIncomplete"
    }
    assert left_over == {name: len(left) for name, left in stayed.items()}
    assert pool_controller.working
    pools.change_pool({"spec": {"scaleInStrategy": None}}, name="both")
    eventually(lambda: ordinals(pools)["both"] == set(), what="the rest goes without selectors")


def test_p8_surplus_vms_are_chosen_from_the_vms_that_match(pools: PoolNamespace) -> None:
    strategy = proactive(selectors=LABELS, sortPolicy="AscendingOrder")
    pools.make_pool(4, template=vm_template(**HALTED), scaleInStrategy=strategy)
    pools.wait_for_ordinals(0, 1, 2, 3, ready=False)
    for ordinal in (1, 2, 3):
        pools.change_vm(f"pool-{ordinal}", {"spec": {"template": {"metadata": {"labels": {"tier": "batch"}}}}})
    pools.wait_until_seen()
    pools.scale(2)
    pools.wait_for_ordinals(0, 3, ready=False)
    assert not pools.told("ScaleInIncomplete")


def test_p8_a_vm_with_a_snapshot_in_progress_is_deleted_last_and_after_the_snapshot(
    pools: PoolNamespace,
) -> None:
    pools.make_pool(3, template=vm_template(**HALTED), scaleInStrategy=proactive(sortPolicy="DescendingOrder"))
    eventually(lambda: ordinals(pools) == {"pool": {0, 1, 2}})
    set_snapshot(pools, "pool-2", "monday")
    pools.wait_until_seen()
    pools.scale(1)
    eventually(lambda: ordinals(pools) == {"pool": {2}}, what="the other two VMs are deleted")
    pools.scale(0)
    eventually(lambda: pools.told("ScaleInHeld") == {"pool": 1}, what="an Event has the reason")
    stays(lambda: ordinals(pools) == {"pool": {2}}, for_s=1.0, what="the VM stays during the snapshot")
    set_snapshot(pools, "pool-2", None)
    eventually(lambda: ordinals(pools) == {"pool": set()}, what="the VM is deleted after the snapshot")


def set_snapshot(pools: PoolNamespace, name: str, snapshot: str | None) -> None:
    pools.change_vm_status(name, {"snapshotInProgress": snapshot})
