"""P14: an update takes no more VMs away than the pool may miss, and stops where they do not come up again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faultproxy import FaultProxy, fault_proxy
from tests.integration.availability import watched
from tests.integration.herd import Herd, Place, eventually, herd, stays
from tests.integration.ranch import BEHAVIOR, READY_AFTER, Ranch, is_vm_ready, simulator, uids, vm_template
from tests.integration.renewal import VMIS, done, memory_of, restarts, revision_of, vm_memory_of
from tests.integration.vacant import SHORT_LEASE

pytestmark = pytest.mark.cluster

SHUTDOWN_AFTER = "sim.vmherd.dev/shutdown-after"
DEADLINE = "vmherd.dev/progress-deadline-seconds"
MIN_READY = "vmherd.dev/min-ready-seconds"
PARTITION = "vmherd.dev/partition"
ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
NEVER_READY = {BEHAVIOR: "never-ready"}


def make(ranch: Ranch, pools: dict[str, tuple[int, Any]], **template: Any) -> None:
    """A pool for each name: its size, and how many of it may be missed."""
    for name, (replicas, allowed) in pools.items():
        more = {} if allowed is None else {"maxUnavailable": allowed}
        ranch.make_pool(replicas, name=name, template=vm_template(**template), **more)
    for name, (replicas, _) in pools.items():
        ranch.wait_ready(replicas, name=name)


def never_ready(ranch: Ranch, *names: str) -> None:
    """Break running VMIs. What their VMs start next is well again."""
    for name in names:
        ranch.change_vmi(name, {"metadata": {"annotations": NEVER_READY}})
    eventually(lambda: not any(is_vm_ready(ranch.vm(name)) for name in names), what=f"{names} are not ready")


ALLOWED: dict[str, tuple[int, Any]] = {
    "number": (6, 2),
    "rounded": (5, "50%"),
    "least": (3, "1%"),
    "default": (4, None),
}
LEAST = {"number": 4, "rounded": 3, "least": 2, "default": 0}


def test_p14_no_more_are_missed_at_once_than_the_number_or_the_percentage_allows(ranch: Ranch) -> None:
    # A guest that takes its time to shut down is missed as long as that takes, though its VMI is there.
    slow = {SHUTDOWN_AFTER: "300ms"}
    make(ranch, ALLOWED, vmi_annotations=slow)
    position = ranch.plane.audit_position()
    with watched(ranch) as availability:
        for name in ALLOWED:
            ranch.change_template(vm_template(memory="128M", vmi_annotations=slow), name=name)
        for name, (replicas, _) in ALLOWED.items():
            ranch.wait_ready(replicas, name=name)
    assert availability.least == LEAST, "all that may be missed are, and no more"
    for name, (replicas, _) in ALLOWED.items():
        assert Counter(restarts(ranch, since=position, pool=name)) == {f"{name}-{each}": 1 for each in range(replicas)}


def test_p14_disks_that_differ_count_as_well(ranch: Ranch) -> None:
    make(ranch, {"pool": (3, 1)}, disks=("root",))
    with watched(ranch) as availability:
        ranch.change_template(vm_template(disks=("root", "data")))
        ranch.wait_ready(3)
    assert availability.least == {"pool": 2}


def test_p14_a_vm_that_its_user_stopped_is_not_missed(ranch: Ranch) -> None:
    make(ranch, {"pool": (4, 1)})
    for name in ("pool-0", "pool-1"):
        ranch.change_vm(name, {"spec": {"runStrategy": "Halted"}})
    eventually(lambda: ranch.vmis().keys() == {"pool-2", "pool-3"})
    with watched(ranch) as availability:
        ranch.change_template(vm_template(memory="128M"))
        ranch.wait_until_updated(4)
        eventually(lambda: ranch.pool_status().get("readyReplicas") == 2)
    assert availability.least == {"pool": 1}
    assert {memory_of(vmi) for vmi in ranch.vmis().values()} == {"128M"}
    assert {vm_memory_of(vm) for vm in ranch.vms().values()} == {"128M"}
    assert ranch.vmis().keys() == {"pool-2", "pool-3"}


def test_p14_outdated_vms_that_are_broken_anyway_go_first_and_free(ranch: Ranch) -> None:
    ranch.make_pool(5, maxUnavailable=1, updateStrategy=ASCENDING)
    ranch.wait_ready(5)
    never_ready(ranch, "pool-2", "pool-4")
    position = ranch.plane.audit_position()
    with watched(ranch) as availability:
        ranch.change_template(vm_template(memory="128M", vmi_annotations={READY_AFTER: "500ms"}))
        eventually(lambda: len(restarts(ranch, since=position)) == 2)
        assert set(restarts(ranch, since=position)) == {"pool-2", "pool-4"}, "they wait for nobody"
        ranch.wait_ready(5)
    assert availability.least == {"pool": 3}, "nobody else goes before they are back"
    assert restarts(ranch, since=position)[2:] == ["pool-0", "pool-1", "pool-3"]


def test_p14_a_restarted_vm_counts_as_ready_only_after_min_ready_seconds(ranch: Ranch) -> None:
    ranch.make_pool(2, maxUnavailable=1, annotations={MIN_READY: "2"})
    ranch.wait_ready(2)
    position = ranch.plane.audit_position()
    ranch.change_template(vm_template(memory="128M"))
    ranch.wait_ready(2)
    first, second = (each.request_received_timestamp for each in done(ranch, "delete", VMIS, since=position))
    # Nothing happens at that moment that could wake the pool: it looks at the clock.
    assert 2.0 < (second - first).total_seconds() < 6.0


def test_p14_ordinals_below_the_partition_keep_their_revision(ranch: Ranch) -> None:
    ranch.make_pool(4, annotations={PARTITION: "2"}, maxUnavailable="50%")
    ranch.wait_ready(4)
    vms, vmis = ranch.vms(), ranch.vmis()
    ranch.change_template(vm_template(memory="128M"))

    def canaries_run() -> bool:
        status = ranch.pool_status()
        return (status.get("updatedReplicas"), status.get("readyReplicas")) == (2, 4)

    eventually(canaries_run)
    for name in ("pool-0", "pool-1"):
        assert ranch.vm(name)["spec"] == vms[name]["spec"]
        assert ranch.vm(name)["metadata"]["labels"] == vms[name]["metadata"]["labels"]
        assert ranch.vmis()[name]["metadata"]["uid"] == vmis[name]["metadata"]["uid"]
    assert [memory_of(ranch.vmis()[name]) for name in ("pool-2", "pool-3")] == ["128M"] * 2
    assert (ranch.pool_status()["currentRevision"], ranch.pool_status()["updateRevision"]) == ("pool-1", "pool-2")
    for name in ("pool-1", "pool-3"):
        ranch.delete_vm(name)
    eventually(lambda: not {vm["metadata"]["uid"] for vm in vms.values()} >= set(uids(ranch.vms()).values()))
    again = ranch.wait_for_ordinals(0, 1, 2, 3)
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
    ranch.change_pool({"metadata": {"annotations": {PARTITION: "1"}}})
    eventually(lambda: ranch.pool_status().get("updatedReplicas") == 3)
    ranch.change_pool({"metadata": {"annotations": {PARTITION: None}}})
    ranch.wait_ready(4)


def test_p14_a_template_that_does_not_come_up_stops_its_own_rollout_and_says_so_once(ranch: Ranch) -> None:
    ranch.make_pool(6, maxUnavailable=2, updateStrategy=ASCENDING, annotations={DEADLINE: "1"})
    ranch.wait_ready(6)
    running = uids(ranch.vmis())
    position = ranch.plane.audit_position()
    ranch.change_template(vm_template(memory="128M", vmi_annotations=NEVER_READY))
    eventually(lambda: ranch.told("RolloutStalled")["pool"] == 1, what="it says so")
    left = {name: uid for name, uid in running.items() if name not in ("pool-0", "pool-1")}

    def others_run() -> bool:
        return left.items() <= uids(ranch.vmis()).items() and ranch.pool_status().get("readyReplicas") == 4

    stays(others_run, for_s=1.0, what="the other four")
    assert sorted(restarts(ranch, since=position)) == ["pool-0", "pool-1"]
    ranch.change_pool({"metadata": {"annotations": {"note": "touched"}}, "spec": {"autohealing": {}}})
    stays(others_run, for_s=0.5)
    assert ranch.told("RolloutStalled") == {"pool": 1}, "it is told once"
    ranch.change_pool({"metadata": {"annotations": {DEADLINE: None}}})

    with watched(ranch) as availability:
        ranch.change_template(vm_template(memory="256M"))
        ranch.wait_ready(6)
    assert availability.least == {"pool": 4}, "the way back costs nothing"
    assert set(restarts(ranch, since=position)[2:4]) == {"pool-0", "pool-1"}
    assert {memory_of(vmi) for vmi in ranch.vmis().values()} == {"256M"}
    assert ranch.told("RolloutStalled") == {"pool": 1}


def test_p14_the_rollout_goes_on_when_the_template_comes_up_late(ranch: Ranch) -> None:
    ranch.make_pool(3, maxUnavailable=1)
    ranch.wait_ready(3)
    position = ranch.plane.audit_position()
    ranch.change_template(vm_template(vmi_annotations=NEVER_READY))
    (first,) = eventually(lambda: restarts(ranch, since=position))
    stays(lambda: restarts(ranch, since=position) == [first], for_s=0.7)
    eventually(lambda: first in ranch.vmis())
    ranch.change_vmi(first, {"metadata": {"annotations": {BEHAVIOR: None}}})
    eventually(lambda: len(restarts(ranch, since=position)) == 2, what="the next one follows")


@pytest.fixture
def proxied(vacant: Place, tmp_path: Path) -> Iterator[tuple[Ranch, FaultProxy, Herd]]:
    """A ranch of the test's own, whose controller sees the cluster through a proxy."""
    plane = vacant.plane
    with (
        fault_proxy(plane.url, plane.ca) as proxy,
        simulator(plane),
        herd(plane, tmp_path, *SHORT_LEASE, through=proxy.write_kubeconfig) as program,
    ):
        yield Ranch(plane, vacant.namespace), proxy, program


def test_p14_restarts_that_the_cache_does_not_show_yet_count(proxied: tuple[Ranch, FaultProxy, Herd]) -> None:
    ranch, proxy, program = proxied
    ranch.make_pool(4, maxUnavailable=1)
    ranch.wait_ready(4)
    position = ranch.plane.audit_position()
    proxy.delay_watch(VMIS, 3600)
    ranch.change_template(vm_template(memory="128M"))
    eventually(lambda: len(restarts(ranch, since=position)) == 1, what="one is restarted")
    before = program.passes(ranch.namespace)
    for threshold in range(1, 5):
        ranch.change_pool({"spec": {"autohealing": {"startUpFailureThreshold": threshold}}})
        stays(lambda: len(restarts(ranch, since=position)) == 1, for_s=0.3, what="one restart")
    assert program.passes(ranch.namespace) >= before + 4
    proxy.delay_watch(VMIS, 0)
    ranch.wait_ready(4)
    assert Counter(restarts(ranch, since=position)) == {f"pool-{ordinal}": 1 for ordinal in range(4)}
