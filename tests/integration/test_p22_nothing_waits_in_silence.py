"""P22: each wait has a reason in the status, and what is refused for one VM delays only this VM."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import eventually, stays
from tests.integration.denied import MESSAGE, denied
from tests.integration.pool_namespace import FINALIZER, HOLD, PoolNamespace, finalizers_of, uids, vm_template
from tests.integration.renewal import VMS, messages_of, vm_memory_of, with_disk

pytestmark = pytest.mark.cluster

SOON_OVERDUE = {"vmherd.dev/progress-deadline-seconds": "2"}
NOT_THE_FIRST = "object.metadata.name != 'pool-0'"


def problem_of(pools: PoolNamespace) -> str:
    problem: str = pools.pool_status().get("problem", "")
    return problem


def test_p22_a_vm_that_stays_terminating_stalls_the_pool_and_its_finalizer_is_named(pools: PoolNamespace) -> None:
    pools.make_pool(3, annotations=SOON_OVERDUE)
    pools.wait_ready(3)
    pools.hold_vm("pool-1")
    pools.delete_vm("pool-1")
    stalled = eventually(lambda: pools.pool_condition("Stalled"), what="the pool is stalled")
    assert stalled["reason"] == "ProgressDeadlineExceeded"
    assert "pool-1" in stalled["message"]
    assert HOLD in stalled["message"]
    assert problem_of(pools) == stalled["message"]
    pools.let_vm_go("pool-1")
    pools.wait_ready(3)
    eventually(lambda: pools.pool_condition("Stalled") is None, what="the condition goes")


def test_p22_a_create_that_waits_long_for_a_disk_has_a_reason(pools: PoolNamespace) -> None:
    pools.make_pool(0, template=with_disk())
    eventually(lambda: pools.pool_status().get("observedGeneration"), what="the pool is seen")
    gone = {"metadata": {"name": "pool-0", "uid": "00000000-0000-0000-0000-000000000000"}}
    pools.make_disk("root-0", owner=gone, finalizers=("example.org/export",))
    pools.scale(1)
    eventually(lambda: "root-0" in problem_of(pools), what="the status names the disk")
    assert (pools.pool_condition("ReplicaFailure") or {})["reason"] == "FailedScaleOut"
    eventually(lambda: any("root-0" in each for each in messages_of(pools, "FailedCreate")), what="an Event")
    pools.let_disk_go("root-0")
    pools.wait_ready(1, within_s=90)
    eventually(lambda: pools.pool_condition("ReplicaFailure") is None, what="the condition goes")


def test_p22_a_vm_whose_update_is_refused_does_not_delay_the_others(pools: PoolNamespace) -> None:
    pools.make_pool(3, maxUnavailable=1)
    pools.wait_ready(3)
    with denied(pools, "UPDATE", VMS, name="pool-0", unless=NOT_THE_FIRST):
        pools.change_template(vm_template(memory="128M"))
        eventually(lambda: pools.pool_status().get("updatedReplicas") == 2, what="the others are updated")

        def is_named() -> bool:
            return "pool-0" in problem_of(pools) and MESSAGE in problem_of(pools)

        eventually(is_named, what="the status names the refused VM")
        stays(is_named, for_s=3.0, what="the reason")
        assert {name: vm_memory_of(vm) for name, vm in pools.vms().items()} == {
            "pool-0": "64M",
            "pool-1": "128M",
            "pool-2": "128M",
        }
        eventually(lambda: any("pool-0" in each for each in messages_of(pools, "UpdateHeld")), what="an Event")
    pools.wait_ready(3, within_s=120)


def test_p22_a_deleted_pool_lets_all_vms_go_but_the_refused_one(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=with_disk(), scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    pools.wait_ready(3)
    claims = uids(pools.claims())
    with denied(pools, "UPDATE", VMS, name="pool-0", unless=NOT_THE_FIRST):
        pools.delete_pools()
        eventually(lambda: pools.vms().keys() == {"pool-0"}, what="the other VMs are gone")
        stays(lambda: FINALIZER in finalizers_of(pools.vm("pool-0")) and pools.pool_exists(), for_s=1.0)
    eventually(lambda: not pools.vms() and not pools.pool_exists(), within_s=120, what="all are gone")
    assert uids(pools.claims()) == claims


def test_p22_a_refused_change_of_the_pool_itself_is_a_failure(pools: PoolNamespace) -> None:
    pools.make_pool(0, name="other")
    eventually(lambda: pools.pool_status("other").get("observedGeneration"))
    with denied(pools, "UPDATE", "virtualmachinepools", name="other"):
        pools.make_pool(1)
        failure = eventually(lambda: pools.pool_condition("ReplicaFailure"), what="the condition")
        assert failure["reason"] == "FailedPoolUpdate"
        assert MESSAGE in failure["message"]
        assert problem_of(pools) == failure["message"]
    pools.wait_ready(1, within_s=120)
    eventually(lambda: pools.pool_condition("ReplicaFailure") is None, what="the condition goes")
