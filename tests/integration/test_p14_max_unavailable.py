"""P14: an update makes at most `maxUnavailable` VMs unavailable, and stops if updated VMs do not become ready."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.integration.availability import watched
from tests.integration.controller_process import (
    eventually,
    stays,
)
from tests.integration.pool_namespace import (
    BEHAVIOR,
    PoolNamespace,
    uids,
    vm_template,
)
from tests.integration.renewal import memory_of, restarts, revision_of, vm_memory_of

pytestmark = pytest.mark.cluster

SHUTDOWN_AFTER = "sim.vmherd.dev/shutdown-after"
DEADLINE = "vmherd.dev/progress-deadline-seconds"
MIN_READY = "vmherd.dev/min-ready-seconds"
PARTITION = "vmherd.dev/partition"
ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
NEVER_READY = {BEHAVIOR: "never-ready"}


def make(pools: PoolNamespace, wanted: dict[str, tuple[int, Any]], **template: Any) -> None:
    """Create a pool for each name, with its size and its `maxUnavailable`."""
    for name, (replicas, allowed) in wanted.items():
        more = {} if allowed is None else {"maxUnavailable": allowed}
        pools.make_pool(replicas, name=name, template=vm_template(**template), **more)
    for name, (replicas, _) in wanted.items():
        pools.wait_ready(replicas, name=name)


ALLOWED: dict[str, tuple[int, Any]] = {
    "number": (6, 2),
    "rounded": (5, "50%"),
    "least": (3, "1%"),
    "default": (4, None),
}
LEAST = {"number": 4, "rounded": 3, "least": 2, "default": 0}


def test_p14_no_more_vms_are_unavailable_than_the_number_or_the_percentage_allows(pools: PoolNamespace) -> None:
    # A guest with a slow shutdown counts as unavailable during the shutdown, although its VMI still exists.
    # The shutdown is longer than the time between the first and the last of the deletes that may run together.
    slow = {SHUTDOWN_AFTER: "1s"}
    make(pools, ALLOWED, vmi_annotations=slow)
    position = pools.plane.audit_position()
    with watched(pools) as availability:
        for name in ALLOWED:
            pools.change_template(vm_template(memory="128M", vmi_annotations=slow), name=name)
        for name, (replicas, _) in ALLOWED.items():
            pools.wait_ready(replicas, name=name)
    assert availability.least == LEAST, "all that may be missed are, and no more"
    for name, (replicas, _) in ALLOWED.items():
        assert Counter(restarts(pools, since=position, pool=name)) == {f"{name}-{each}": 1 for each in range(replicas)}


def test_p14_ordinals_below_the_partition_keep_their_revision(pools: PoolNamespace) -> None:
    pools.make_pool(4, annotations={PARTITION: "2"}, maxUnavailable="50%")
    pools.wait_ready(4)
    vms, vmis = pools.vms(), pools.vmis()
    pools.change_template(vm_template(memory="128M"))

    def canaries_run() -> bool:
        status = pools.pool_status()
        return (status.get("updatedReplicas"), status.get("readyReplicas")) == (2, 4)

    eventually(canaries_run)
    for name in ("pool-0", "pool-1"):
        assert pools.vm(name)["spec"] == vms[name]["spec"]
        assert pools.vm(name)["metadata"]["labels"] == vms[name]["metadata"]["labels"]
        assert pools.vmis()[name]["metadata"]["uid"] == vmis[name]["metadata"]["uid"]
    assert [memory_of(pools.vmis()[name]) for name in ("pool-2", "pool-3")] == ["128M"] * 2
    assert (pools.pool_status()["currentRevision"], pools.pool_status()["updateRevision"]) == ("pool-1", "pool-2")
    for name in ("pool-1", "pool-3"):
        pools.delete_vm(name)
    eventually(lambda: not {vm["metadata"]["uid"] for vm in vms.values()} >= set(uids(pools.vms()).values()))
    again = pools.wait_for_ordinals(0, 1, 2, 3)
    assert {name: revision_of(vm) for name, vm in again.items()} == {
        "pool-0": "pool-1",
        "pool-1": "pool-1",
        "pool-2": "pool-2",
        "pool-3": "pool-2",
    }
    assert {name: vm_memory_of(vm) for name, vm in again.items()} == {
        "pool-0": "64M",
        "pool-1": "64M",
        "pool-2": "128M",
        "pool-3": "128M",
    }
    pools.change_pool({"metadata": {"annotations": {PARTITION: "1"}}})
    eventually(lambda: pools.pool_status().get("updatedReplicas") == 3)
    pools.change_pool({"metadata": {"annotations": {PARTITION: None}}})
    pools.wait_ready(4)


def test_p14_a_template_that_does_not_come_up_stops_its_own_rollout_and_is_reported_once(pools: PoolNamespace) -> None:
    pools.make_pool(6, maxUnavailable=2, updateStrategy=ASCENDING, annotations={DEADLINE: "1"})
    pools.wait_ready(6)
    running = uids(pools.vmis())
    position = pools.plane.audit_position()
    pools.change_template(vm_template(memory="128M", vmi_annotations=NEVER_READY))
    eventually(lambda: pools.told("RolloutStalled")["pool"] == 1, what="an Event reports the stall")
    left = {name: uid for name, uid in running.items() if name not in ("pool-0", "pool-1")}

    def others_run() -> bool:
        return left.items() <= uids(pools.vmis()).items() and pools.pool_status().get("readyReplicas") == 4

    eventually(others_run, what="the status shows the two VMs that do not come up")
    stays(others_run, for_s=1.0, what="the other four VMs run")
    assert sorted(restarts(pools, since=position)) == ["pool-0", "pool-1"]
    pools.change_pool({"metadata": {"annotations": {"note": "touched"}}, "spec": {"autohealing": {}}})
    stays(others_run, for_s=0.5)
    assert pools.told("RolloutStalled") == {"pool": 1}, "it is told once"
    pools.change_pool({"metadata": {"annotations": {DEADLINE: None}}})

    with watched(pools) as availability:
        pools.change_template(vm_template(memory="256M"))
        pools.wait_ready(6)
    assert availability.least == {"pool": 4}, "the way back costs nothing"
    assert set(restarts(pools, since=position)[2:4]) == {"pool-0", "pool-1"}
    assert {memory_of(vmi) for vmi in pools.vmis().values()} == {"256M"}
    assert pools.told("RolloutStalled") == {"pool": 1}


def test_p14_the_rollout_goes_on_when_the_template_comes_up_late(pools: PoolNamespace) -> None:
    pools.make_pool(3, maxUnavailable=1)
    pools.wait_ready(3)
    running = uids(pools.vmis())
    position = pools.plane.audit_position()
    pools.change_template(vm_template(vmi_annotations=NEVER_READY))
    (first,) = eventually(lambda: restarts(pools, since=position))
    stays(lambda: restarts(pools, since=position) == [first], for_s=0.7)
    eventually(lambda: uids(pools.vmis()).get(first, running[first]) != running[first], what="the new VMI")
    pools.change_vmi(first, {"metadata": {"annotations": {BEHAVIOR: None}}})
    eventually(lambda: len(restarts(pools, since=position)) == 2, what="the next VM is restarted")
