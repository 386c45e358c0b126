"""Guarantees for users in combined situations: scaling, pausing, failures and deletions at the same time."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.controller_process import ControllerProcess, eventually, owner_uid, quiet_down, stays
from tests.integration.denied import denied
from tests.integration.pool_namespace import FINALIZER, HOLD, PoolNamespace, finalizers_of, uids, vm_template

pytestmark = pytest.mark.cluster

HALTED = {"runStrategy": "Halted"}
OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def held(pools: PoolNamespace, count: int) -> None:
    """Add a finalizer to every VM, so that deleted VMs stay."""
    for ordinal in range(count):
        pools.hold_vm(f"pool-{ordinal}")


def test_a_pool_that_is_scaled_in_and_out_while_its_vms_terminate_reaches_its_number(
    pools: PoolNamespace, pool_controller: ControllerProcess
) -> None:
    pools.make_pool(10, template=vm_template(**HALTED))
    pools.wait_for_ordinals(*range(10), ready=False)
    held(pools, 10)
    pools.scale(5)
    eventually(lambda: sum("deletionTimestamp" in vm["metadata"] for vm in pools.vms().values()) == 5)
    pools.scale(9)
    eventually(lambda: pools.pool_status().get("observedGeneration") == 3)
    stays(lambda: len(pools.alive_vms()) == 5, for_s=0.7, what="no VM is deleted or created")
    for name, vm in pools.vms().items():
        if "deletionTimestamp" in vm["metadata"]:
            pools.let_vm_go(name)
    eventually(lambda: len(pools.alive_vms()) == len(pools.vms()) == 9, what="nine")
    pools.scale(1)
    eventually(lambda: len(pools.alive_vms()) == 1)
    pools.scale(6)
    for name, vm in pools.vms().items():
        if HOLD in finalizers_of(vm) and "deletionTimestamp" in vm["metadata"]:
            pools.let_vm_go(name)
    eventually(lambda: len(pools.alive_vms()) == len(pools.vms()) == 6, what="six")
    assert max(pools.vms_created().values()) <= 3
    assert not pool_controller.lines(level="error", namespace=pools.namespace)


def test_a_vm_waits_until_its_disks_are_preserved_even_after_many_refusals(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=vm_template(disks=("root",), **HALTED), scaleInStrategy=OFFLINE)
    pools.wait_for_ordinals(0, 1, ready=False)
    eventually(lambda: pools.data_volumes().keys() == {"root-0", "root-1"})
    eventually(lambda: pools.claims().keys() == {"root-0", "root-1"})
    disks = uids(pools.data_volumes()), uids(pools.claims())
    with denied(pools, "UPDATE", "datavolumes", name="root-1"):
        pools.scale(1)
        eventually(lambda: (pools.pool_condition("ReplicaFailure") or {}).get("reason") == "FailedScaleIn")
        stays(lambda: FINALIZER in finalizers_of(pools.vm("pool-1")), for_s=1.0, what="the VM is held")
        assert owner_uid(pools.data_volumes()["root-1"]) == pools.vm("pool-1")["metadata"]["uid"]
    pools.wait_for_ordinals(0, ready=False)
    assert owner_uid(pools.data_volumes()["root-1"]) == ""
    stays(lambda: (uids(pools.data_volumes()), uids(pools.claims())) == disks, what="the disks")
    eventually(lambda: pools.pool_condition("ReplicaFailure") is None)


def event_requests(pools: PoolNamespace) -> int:
    records = pools.plane.audit_records(pools.since)
    ours = [record for record in records if record.user_agent.startswith("vmherd/")]
    return sum(record.resource == "events" and record.namespace == pools.namespace for record in ours)


def test_p18_a_large_pool_creates_and_deletes_each_vm_once_with_at_most_a_few_dozen_event_requests(
    pools: PoolNamespace,
) -> None:
    pools.make_pool(200, template=vm_template(**HALTED))
    eventually(lambda: pools.pool_status().get("replicas") == 200, within_s=60, what="all VMs exist")
    eventually(lambda: any("(combined" in event["message"] for event in pools.events()), what="the Events arrive")
    eventually(lambda: event_requests(pools) >= 10, what="the audit log shows the requests for Events")
    stays(lambda: event_requests(pools) <= 36, what="a few dozen")
    described = pools.kubectl("describe", "vmpool", "pool").stdout
    assert "(combined" in described[described.index("Events:") :]
    assert pools.asked_of_vms("create") == {(f"pool-{ordinal}", 201): 1 for ordinal in range(200)}
    # A VM that changes after the controller has seen it needs a second delete.
    eventually(
        lambda: all((vm.get("status") or {}).get("printableStatus") == "Stopped" for vm in pools.vms().values()),
        what="KubeVirt writes no more to the VMs",
    )
    pools.wait_until_seen()
    pools.scale(20)
    eventually(lambda: len(pools.vms()) == 20, within_s=60, what="twenty VMs are left")
    eventually(lambda: pools.pool_status().get("replicas") == 20)
    asked = pools.asked_of_vms("delete")
    assert len(asked) == 180
    assert set(asked.values()) == {1}
    assert {code for _, code in asked} == {200}


def test_vms_that_others_delete_during_a_scale_in_cause_no_failure(pools: PoolNamespace) -> None:
    pools.make_pool(30, template=vm_template(**HALTED))
    eventually(lambda: pools.pool_status().get("replicas") == 30)
    # A controller that does not know the new number yet would replace the VMs that others delete.
    pools.change_pool({"spec": {"paused": True, "replicas": 0}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"), what="the controller has seen the new number")
    pools.change_pool({"spec": {"paused": False}})
    pools.kubectl("delete", "vm", "--all", "--wait=false")
    eventually(lambda: not pools.vms(), what="all VMs go")
    eventually(lambda: pools.pool_status().get("printableStatus") == "Stopped")
    assert pools.pool_condition("ReplicaFailure") is None
    assert pools.told("FailedDelete") == {}
    assert pools.vms_created().total() == 30, "none comes back"


def test_no_request_is_sent_for_a_deleted_pool(pools: PoolNamespace, pool_controller: ControllerProcess) -> None:
    for name in ("first", "second", "third"):
        pools.make_pool(2, name=name, template=vm_template(**HALTED))
    pools.wait_for_vms(*(f"{name}-{n}" for name in ("first", "second", "third") for n in (0, 1)), ready=False)
    pools.wait_until_seen(name="first")
    quiet_down(pools, pool_controller)
    position = pools.plane.audit_position()
    pools.kubectl("delete", "vmpool", "--all", "--wait=true")
    eventually(lambda: not pools.vms(), what="the VMs go")
    codes = Counter(
        (r.verb, r.resource, r.subresource, r.code) for r in pools.requests(since=position) if r.code >= 400
    )
    assert not {asked: n for asked, n in codes.items() if asked[1] == "virtualmachinepools"}
    assert not pool_controller.lines(level="error", namespace=pools.namespace)


def test_a_pool_that_cannot_scale_in_does_not_delay_other_pools(pools: PoolNamespace) -> None:
    never = {"proactive": {"selectionPolicy": {"selectors": {"labelSelector": {"matchLabels": {"no": "such"}}}}}}
    pools.make_pool(3, name="odd", template=vm_template(**HALTED), scaleInStrategy=never)
    pools.make_pool(2, template=vm_template(**HALTED))
    eventually(lambda: len(pools.alive_vms()) == 5)
    pools.change_pool({"spec": {"replicas": 0}}, name="odd")
    eventually(lambda: pools.pool_status("odd").get("observedGeneration") == 2)
    pools.scale(4)
    eventually(lambda: {f"pool-{n}" for n in range(4)} <= pools.alive_vms(), what="the other pool grows")
    assert {f"odd-{n}" for n in range(3)} <= pools.alive_vms()
