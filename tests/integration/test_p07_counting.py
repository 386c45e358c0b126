"""P7: what the status counts."""

from __future__ import annotations

import pytest

from tests.integration.herd import eventually
from tests.integration.ranch import BEHAVIOR, Ranch, vm_template

pytestmark = pytest.mark.cluster


def counts(ranch: Ranch) -> tuple[int, int]:
    status = ranch.pool_status()
    return status.get("replicas", 0), status.get("readyReplicas", 0)


def test_p7_replicas_are_all_members_and_ready_ones_those_that_say_so(ranch: Ranch) -> None:
    ranch.make_vm("stranger")
    ranch.make_pool(3)
    ranch.wait_ready(3)
    ranch.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}})
    eventually(lambda: counts(ranch) == (3, 2), what="one is not ready any more")
    ranch.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: None}}})
    eventually(lambda: counts(ranch) == (3, 3), what="and ready again")


def test_p7_members_that_never_come_up_count_as_replicas_alone(ranch: Ranch) -> None:
    ranch.make_pool(2, template=vm_template(vmi_annotations={BEHAVIOR: "never-ready"}))
    ranch.wait_for_ordinals(0, 1, ready=False)
    eventually(lambda: counts(ranch) == (2, 0))


def test_p7_members_that_are_being_deleted_count_until_they_are_gone(ranch: Ranch) -> None:
    ranch.make_pool(3)
    ranch.wait_for_ordinals(0, 1, 2)
    for name in ("pool-0", "pool-1", "pool-2"):
        ranch.hold_vm(name)
    ranch.scale(1)
    eventually(lambda: ranch.pool_status().get("observedGeneration") == ranch.pool()["metadata"]["generation"])
    eventually(lambda: sum("deletionTimestamp" in vm["metadata"] for vm in ranch.vms().values()) == 2)
    eventually(lambda: counts(ranch) == (3, 1), what="three are there, and one of them is ready")
    for name in ("pool-0", "pool-1", "pool-2"):
        ranch.let_vm_go(name)
    eventually(lambda: counts(ranch) == (1, 1), what="two are gone")


def test_p7_a_released_vm_does_not_count_and_a_stopped_one_does(ranch: Ranch) -> None:
    ranch.make_pool(2, template=vm_template(runStrategy="Halted"))
    ranch.wait_for_ordinals(0, 1, ready=False)
    eventually(lambda: counts(ranch) == (2, 0))
    ranch.change_pool({"spec": {"paused": True}})
    eventually(lambda: ranch.pool_condition("ReplicaPaused"))
    ranch.kubectl("patch", "vm", "pool-0", "--type=merge", "--patch", '{"metadata":{"ownerReferences":null}}')
    eventually(lambda: counts(ranch) == (1, 0), what="a paused pool still counts")
