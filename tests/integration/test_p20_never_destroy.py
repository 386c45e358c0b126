"""P20: no VM is deleted that could not come back, or that must not be deleted now."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sandbox.storage_classes import FIXED_SIZE, STANDARD
from tests.faults.actions import HoldWatch
from tests.faults.rules import Match, Rule
from tests.faults.threads import ThreadedProxy
from tests.integration.controller_process import (
    PATIENT_LEASE,
    ControllerProcess,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    stays,
)
from tests.integration.denied import MESSAGE, WEBHOOK_DOWN, denied, webhook_down
from tests.integration.pool_namespace import BEHAVIOR, PoolNamespace, uids, vm_template
from tests.integration.quota import allow
from tests.integration.renewal import VMS, break_vm, classes_of, messages_of, printable_status_of, with_disk

pytestmark = pytest.mark.cluster

SOON = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "1s"}
LAST_FIRST = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
NEW_DISKS = with_disk(storageClassName=FIXED_SIZE)


def refused_by_policy(pools: PoolNamespace) -> AbstractContextManager[None]:
    return denied(pools, "CREATE", VMS)


def refused_by_webhook(pools: PoolNamespace) -> AbstractContextManager[None]:
    return webhook_down(pools, VMS)


@pytest.mark.parametrize(("refused", "words"), [(refused_by_policy, MESSAGE), (refused_by_webhook, WEBHOOK_DOWN)])
def test_p20_a_rollout_deletes_no_vm_and_no_disk_while_new_vms_are_refused(
    pools: PoolNamespace, refused: Callable[[PoolNamespace], AbstractContextManager[None]], words: str
) -> None:
    pools.make_pool(5, template=with_disk(), maxUnavailable=1)
    pools.wait_ready(5)
    vms, claims = uids(pools.vms()), uids(pools.claims())
    with refused(pools):
        pools.change_template(NEW_DISKS)
        eventually(lambda: any(words in each for each in messages_of(pools, "UpdateHeld")), what="an Event")
        failure = eventually(lambda: pools.pool_condition("ReplicaFailure"))
        assert failure["reason"] == "FailedUpdate"
        assert words in failure["message"]
        assert words in pools.pool_status()["problem"]
        stays(lambda: (uids(pools.vms()), uids(pools.claims())) == (vms, claims), for_s=3.0, what="VMs and disks")
    pools.wait_ready(5, within_s=150)
    assert set(classes_of(pools).values()) == {FIXED_SIZE}
    assert not set(uids(pools.vms()).values()) & set(vms.values())
    eventually(lambda: pools.pool_condition("ReplicaFailure") is None, what="the condition goes")


def test_p20_a_quota_that_is_exactly_full_does_not_hold_a_rollout(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=with_disk(), maxUnavailable=1)
    pools.wait_ready(3)
    allow(pools, 3, of=VMS)
    pools.change_template(NEW_DISKS)
    pools.wait_ready(3, within_s=120)
    assert set(classes_of(pools).values()) == {FIXED_SIZE}
    assert messages_of(pools, "UpdateHeld") == []


def test_p20_a_failing_vm_is_not_healed_while_new_vms_are_refused(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=vm_template(), autohealing=SOON)
    pools.wait_ready(3)
    before = uids(pools.vms())
    with denied(pools, "CREATE", VMS):
        break_vm(pools, "pool-1", "image-error")
        held = eventually(lambda: messages_of(pools, "HealingHeld"), what="an Event")
        assert held[0].startswith("pool-1 is not replaced: ")
        assert MESSAGE in held[0]
        stays(lambda: uids(pools.vms()) == before, for_s=3.0, what="the VMs")
        assert MESSAGE in (pools.pool_condition("ReplicaFailure") or {})["message"]
    pools.wait_ready(3, within_s=120)
    after = uids(pools.vms())
    assert {name for name in before if after[name] != before[name]} == {"pool-1"}


def test_p20_a_protected_vm_survives_scale_in_update_and_healing(pools: PoolNamespace) -> None:
    pools.make_pool(4, template=with_disk(), autohealing=SOON, maxUnavailable=1, scaleInStrategy=LAST_FIRST)
    pools.wait_ready(4)
    before = uids(pools.vms())
    pools.mark_vm("pool-3", protect="True")
    pools.scale(3)
    pools.wait_for_ordinals(0, 1, 3)
    pools.change_template(NEW_DISKS)
    wanted = {"root-0": FIXED_SIZE, "root-1": FIXED_SIZE, "root-3": STANDARD}
    eventually(lambda: classes_of(pools) == wanted, what="the disks of the other VMs are new")
    pools.wait_for_ordinals(0, 1, 3)
    break_vm(pools, "pool-3", "fail")
    for reason in ("UpdateHeld", "HealingHeld"):
        eventually(lambda reason=reason: any("pool-3" in each for each in messages_of(pools, reason)), what=reason)
        assert all("it is protected by vmherd.dev/protect" in each for each in messages_of(pools, reason))
    stays(lambda: pools.vm("pool-3")["metadata"]["uid"] == before["pool-3"], for_s=4.0, what="the protected VM")
    assert classes_of(pools) == wanted


def test_p20_a_vm_that_is_protected_after_the_plan_is_not_deleted(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    pools = PoolNamespace(idle_namespace.plane, idle_namespace.namespace)
    healing = {"startUpFailureThreshold": 2, "minFailingToStartDuration": "1h"}
    pools.make_pool(3, template=with_disk(), autohealing=healing, maxUnavailable=3, scaleInStrategy=LAST_FIRST)
    before = uids(pools.wait_for_ordinals(0, 1, 2, ready=False))
    pools.change_pool({"spec": {"paused": True, "replicas": 2}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"))
    pools.change_template(NEW_DISKS)
    pools.change_vm_status(
        "pool-0", {"printableStatus": "CrashLoopBackOff", "startFailure": {"consecutiveFailCount": 2}}
    )
    pools.wait_until_seen()
    held = proxy.add(Rule(Match("watch", VMS), HoldWatch(), times=None))
    for name in before:
        pools.mark_vm(name, protect="True")
    pools.change_pool({"spec": {"paused": False}})
    conflicts = {(name, 409) for name in before}
    eventually(lambda: pools.asked_of_vms("delete").keys() >= conflicts, what="healing, update and scale-in give up")
    assert uids(pools.vms()) == before
    proxy.remove(held)
    stays(lambda: uids(pools.vms()) == before, for_s=2.0, what="the protected VMs")
    assert proxied.working


def test_p20_a_limit_of_replicas_below_the_size_shrinks_no_pool(
    idle_namespace: ReplicaSetNamespace, tmp_path: Path
) -> None:
    pools = PoolNamespace(idle_namespace.plane, idle_namespace.namespace)
    with controller_process(pools.plane, tmp_path, *PATIENT_LEASE) as program:
        pools.make_pool(3, template=with_disk())
        before = uids(pools.wait_for_ordinals(0, 1, 2, ready=False))
        program.stop()
    with controller_process(pools.plane, tmp_path, *PATIENT_LEASE, "--max-replicas", "2"):
        pools.change_template(NEW_DISKS)
        held = eventually(lambda: messages_of(pools, "UpdateHeld"), what="an Event")
        assert all("--max-replicas (2)" in each for each in held)
        stays(lambda: uids(pools.vms()) == before, for_s=2.0, what="the VMs")
        eventually(lambda: "--max-replicas (2)" in pools.pool_status().get("problem", ""), what="the status says so")


def test_p20_a_paused_vm_is_neither_healed_nor_first_in_a_scale_in(pools: PoolNamespace) -> None:
    pools.make_pool(3, annotations={"vmherd.dev/replace-unready-after-seconds": "2"})
    pools.wait_ready(3)
    before = uids(pools.vms())
    pools.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: "paused"}}})
    eventually(lambda: printable_status_of(pools.vm("pool-1")) == "Paused", what="the VM is paused")
    stays(lambda: uids(pools.vms()) == before, for_s=5.0, what="the VMs")
    pools.scale(1)
    eventually(lambda: pools.alive_vms() == {"pool-1"}, what="the other VMs go")
    assert pools.vm("pool-1")["metadata"]["uid"] == before["pool-1"]
