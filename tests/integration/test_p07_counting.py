"""P7: the replica counts in the status."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import BEHAVIOR, PoolNamespace, vm_template

pytestmark = pytest.mark.cluster


def counts(pools: PoolNamespace) -> tuple[int, int]:
    status = pools.pool_status()
    return status.get("replicas", 0), status.get("readyReplicas", 0)


def test_p7_replicas_are_all_members_and_ready_ones_those_that_say_so(pools: PoolNamespace) -> None:
    pools.make_vm("stranger")
    pools.make_pool(3)
    pools.wait_ready(3)
    pools.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}})
    eventually(lambda: counts(pools) == (3, 2), what="one VM is not ready")
    pools.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: None}}})
    eventually(lambda: counts(pools) == (3, 3), what="all are ready again")


def test_p7_members_that_never_come_up_count_as_replicas_alone(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=vm_template(vmi_annotations={BEHAVIOR: "never-ready"}))
    pools.wait_for_ordinals(0, 1, ready=False)
    eventually(lambda: counts(pools) == (2, 0))


def test_p7_members_that_are_being_deleted_count_until_they_are_gone(pools: PoolNamespace) -> None:
    pools.make_pool(3)
    pools.wait_for_ordinals(0, 1, 2)
    for name in ("pool-0", "pool-1", "pool-2"):
        pools.hold_vm(name)
    pools.scale(1)
    eventually(lambda: pools.pool_status().get("observedGeneration") == pools.pool()["metadata"]["generation"])
    eventually(lambda: sum("deletionTimestamp" in vm["metadata"] for vm in pools.vms().values()) == 2)
    eventually(lambda: counts(pools) == (3, 1), what="three VMs, one of them ready")
    for name in ("pool-0", "pool-1", "pool-2"):
        pools.let_vm_go(name)
    eventually(lambda: counts(pools) == (1, 1), what="two are gone")


def test_p7_a_released_vm_does_not_count_and_a_stopped_one_does(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=vm_template(runStrategy="Halted"))
    pools.wait_for_ordinals(0, 1, ready=False)
    eventually(lambda: counts(pools) == (2, 0))
    pools.change_pool({"spec": {"paused": True}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"))
    pools.kubectl("patch", "vm", "pool-0", "--type=merge", "--patch", '{"metadata":{"ownerReferences":null}}')
    eventually(lambda: counts(pools) == (1, 0), what="a paused pool still counts")
