"""What users may rely on when things come together: a pool at the edge of its rules harms nobody, itself included."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.denied import denied
from tests.integration.herd import Herd, eventually, owner_uid, stays
from tests.integration.ranch import FINALIZER, HOLD, Ranch, finalizers_of, uids, vm_template
from tests.integration.renewal import break_vm, failures_of

pytestmark = pytest.mark.cluster

HALTED = {"runStrategy": "Halted"}
OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def held(ranch: Ranch, count: int) -> None:
    """Keep each VM there is when it is deleted."""
    for ordinal in range(count):
        ranch.hold_vm(f"pool-{ordinal}")


def test_a_pool_shrunk_and_grown_again_while_its_vms_still_go_comes_to_its_number(ranch: Ranch, rancher: Herd) -> None:
    ranch.make_pool(10, template=vm_template(**HALTED))
    ranch.wait_for_ordinals(*range(10), ready=False)
    held(ranch, 10)
    ranch.scale(5)
    eventually(lambda: sum("deletionTimestamp" in vm["metadata"] for vm in ranch.vms().values()) == 5)
    ranch.scale(9)
    eventually(lambda: ranch.pool_status().get("observedGeneration") == 3)
    stays(lambda: len(ranch.alive_vms()) == 5, for_s=0.7, what="nobody else goes, and nobody takes a place")
    for name, vm in ranch.vms().items():
        if "deletionTimestamp" in vm["metadata"]:
            ranch.let_vm_go(name)
    eventually(lambda: len(ranch.alive_vms()) == len(ranch.vms()) == 9, what="nine")
    ranch.scale(1)
    eventually(lambda: len(ranch.alive_vms()) == 1)
    ranch.scale(6)
    for name, vm in ranch.vms().items():
        if HOLD in finalizers_of(vm) and "deletionTimestamp" in vm["metadata"]:
            ranch.let_vm_go(name)
    eventually(lambda: len(ranch.alive_vms()) == len(ranch.vms()) == 6, what="six")
    assert max(ranch.vms_created().values()) <= 3
    assert not rancher.lines(level="error", namespace=ranch.namespace)


def test_a_failing_vm_of_a_paused_pool_is_left_to_its_user(ranch: Ranch) -> None:
    ranch.make_pool(3, maxUnavailable=1, autohealing={"startUpFailureThreshold": 2})
    ranch.wait_ready(3)
    ranch.change_pool({"spec": {"paused": True}})
    eventually(lambda: ranch.pool_condition("ReplicaPaused"))
    before = uids(ranch.vms())
    break_vm(ranch, "pool-0", "crash-loop")
    eventually(lambda: failures_of(ranch.vm("pool-0")) >= 2, what="it fails often enough")
    ranch.wait_until_seen()
    stays(lambda: uids(ranch.vms()) == before, for_s=1.0, what="the VMs")
    ranch.change_pool({"spec": {"paused": False}})
    ranch.wait_ready(3)
    after = uids(ranch.vms())
    assert {name for name, uid in before.items() if after[name] != uid} == {"pool-0"}


def test_a_vm_waits_until_its_disks_are_safe_however_often_that_is_refused(ranch: Ranch) -> None:
    ranch.make_pool(2, template=vm_template(disks=("root",), **HALTED), scaleInStrategy=OFFLINE)
    ranch.wait_for_ordinals(0, 1, ready=False)
    eventually(lambda: ranch.data_volumes().keys() == {"root-0", "root-1"})
    eventually(lambda: ranch.claims().keys() == {"root-0", "root-1"})
    disks = uids(ranch.data_volumes()), uids(ranch.claims())
    with denied(ranch, "UPDATE", "datavolumes", probe=("annotate", "datavolume", "root-1", "probe=yes")):
        ranch.scale(1)
        eventually(lambda: (ranch.pool_condition("ReplicaFailure") or {}).get("reason") == "FailedScaleIn")
        stays(lambda: FINALIZER in finalizers_of(ranch.vm("pool-1")), for_s=1.0, what="the VM is held")
        assert owner_uid(ranch.data_volumes()["root-1"]) == ranch.vm("pool-1")["metadata"]["uid"]
    ranch.wait_for_ordinals(0, ready=False)
    assert owner_uid(ranch.data_volumes()["root-1"]) == ""
    stays(lambda: (uids(ranch.data_volumes()), uids(ranch.claims())) == disks, what="the disks")
    eventually(lambda: ranch.pool_condition("ReplicaFailure") is None)


def test_a_large_pool_asks_for_each_vm_once_and_deletes_it_once(ranch: Ranch) -> None:
    ranch.make_pool(200, template=vm_template(**HALTED))
    eventually(lambda: ranch.pool_status().get("replicas") == 200, within_s=60, what="all are there")
    assert ranch.asked_of_vms("create") == {(f"pool-{ordinal}", 201): 1 for ordinal in range(200)}
    ranch.scale(20)
    eventually(lambda: len(ranch.vms()) == 20, within_s=60, what="twenty are left")
    eventually(lambda: ranch.pool_status().get("replicas") == 20)
    asked = ranch.asked_of_vms("delete")
    assert len(asked) == 180
    assert set(asked.values()) == {1}
    assert {code for _, code in asked} == {200}


def test_vms_that_others_delete_while_the_pool_shrinks_are_no_failure(ranch: Ranch) -> None:
    ranch.make_pool(30, template=vm_template(**HALTED))
    eventually(lambda: ranch.pool_status().get("replicas") == 30)
    ranch.scale(0)
    ranch.kubectl("delete", "vm", "--all", "--wait=false")
    eventually(lambda: not ranch.vms(), what="all go")
    eventually(lambda: ranch.pool_status().get("printableStatus") == "Stopped")
    assert ranch.pool_condition("ReplicaFailure") is None
    assert ranch.told("FailedDelete") == {}
    assert ranch.vms_created().total() == 30, "none comes back"


def test_nothing_is_asked_of_a_pool_that_is_gone(ranch: Ranch, rancher: Herd) -> None:
    for name in ("first", "second", "third"):
        ranch.make_pool(2, name=name, template=vm_template(**HALTED))
    ranch.wait_for_vms(*(f"{name}-{n}" for name in ("first", "second", "third") for n in (0, 1)), ready=False)
    ranch.wait_until_seen(name="first")
    position = ranch.plane.audit_position()
    ranch.kubectl("delete", "vmpool", "--all", "--wait=true")
    eventually(lambda: not ranch.vms(), what="the VMs go")
    codes = Counter((r.verb, r.resource, r.code) for r in ranch.requests(since=position) if r.code >= 400)
    assert not {asked: n for asked, n in codes.items() if asked[1] == "virtualmachinepools"}
    assert not rancher.lines(level="error", namespace=ranch.namespace)


def test_a_pool_that_a_user_abuses_holds_up_no_other(ranch: Ranch) -> None:
    never = {"proactive": {"selectionPolicy": {"selectors": {"labelSelector": {"matchLabels": {"no": "such"}}}}}}
    ranch.make_pool(3, name="odd", template=vm_template(**HALTED), scaleInStrategy=never)
    ranch.make_pool(2, template=vm_template(**HALTED))
    eventually(lambda: len(ranch.alive_vms()) == 5)
    ranch.change_pool({"spec": {"replicas": 0}}, name="odd")
    eventually(lambda: ranch.pool_status("odd").get("observedGeneration") == 2)
    ranch.scale(4)
    eventually(lambda: {f"pool-{n}" for n in range(4)} <= ranch.alive_vms(), within_s=5, what="the other pool grows")
    assert {f"odd-{n}" for n in range(3)} <= ranch.alive_vms()
