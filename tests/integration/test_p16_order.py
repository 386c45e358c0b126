"""P16: the order of the actions in a reconciliation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.controller_process import (
    PATIENT_LEASE,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    stays,
)
from tests.integration.pool_namespace import BEHAVIOR, READY_AFTER, PoolNamespace, vm_template
from tests.integration.quota import allow
from tests.integration.renewal import (
    VMS,
    done,
    restarts,
    vm_memory_of,
)

pytestmark = pytest.mark.cluster

HALTED = {"runStrategy": "Halted"}
ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
DESCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
HEALING = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "1s"}
QUICK = {BEHAVIOR: "normal", READY_AFTER: "100ms"}


def paused(pools: PoolNamespace) -> None:
    pools.change_pool({"spec": {"paused": True}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"), what="the pool is paused")


def change_in_one(pools: PoolNamespace, template: dict[str, Any], **spec: Any) -> None:
    pools.change_pool({"spec": {"virtualMachineTemplate": template, **spec}})


def test_p16_a_new_pool_gets_its_finalizer_first_then_revision_vms_and_status(pools: PoolNamespace) -> None:
    pools.make_pool(5)
    pools.wait_ready(5)
    written = sorted(pools.requests("create", "patch"), key=lambda each: each.request_received_timestamp)
    first = list(dict.fromkeys((each.resource, each.subresource) for each in written))
    assert first == [
        ("virtualmachinepools", ""),
        ("controllerrevisions", ""),
        (VMS, ""),
        ("virtualmachinepools", "status"),
    ]
    assert Counter(each.code for each in pools.requests("create")) == {201: 6}, "nothing is asked for twice"


def test_p16_nothing_is_updated_while_vms_are_missing(idle_namespace: ReplicaSetNamespace, tmp_path: Path) -> None:
    pools = PoolNamespace(idle_namespace.plane, idle_namespace.namespace)
    with controller_process(idle_namespace.plane, tmp_path, "--burst", "1", *PATIENT_LEASE):
        pools.make_pool(2, template=vm_template(**HALTED))
        pools.wait_until_updated(2)
        position = pools.plane.audit_position()
        change_in_one(pools, vm_template(memory="128M", **HALTED), replicas=5)
        pools.wait_until_updated(5)
    records = [each for each in pools.requests("create", "patch", since=position) if each.resource == VMS]
    records.sort(key=lambda each: each.request_received_timestamp)
    assert [each.verb for each in records] == ["create"] * 3 + ["patch"] * 2
    assert {vm_memory_of(vm) for vm in pools.vms().values()} == {"128M"}


def test_p16_a_full_quota_does_not_hold_up_an_update(pools: PoolNamespace) -> None:
    allow(pools, 2, of=VMS)
    pools.make_pool(4, template=vm_template(**HALTED))
    eventually(lambda: (pools.pool_condition("ReplicaFailure") or {}).get("reason") == "FailedScaleOut")
    pools.change_template(vm_template(memory="128M", **HALTED))
    eventually(
        lambda: [vm_memory_of(vm) for vm in pools.vms().values()] == ["128M"] * 2, what="the existing VMs are updated"
    )
    assert (pools.pool_condition("ReplicaFailure") or {})["reason"] == "FailedScaleOut"
    allow(pools, 9, of=VMS)
    # A change of the spec ends the wait for the next attempt.
    pools.scale(3)
    pools.wait_until_updated(3)
    assert pools.pool_condition("ReplicaFailure") is None


def test_p16_revisions_are_pruned_only_if_nothing_else_is_to_do(pools: PoolNamespace) -> None:
    allow(pools, 1, of=VMS)
    pools.make_pool(1, template=vm_template(**HALTED))
    pools.wait_until_updated(1)
    pools.scale(2)
    eventually(lambda: pools.pool_condition("ReplicaFailure"), what="a create is refused")
    names = ["pool-1"]
    for version in range(1, 9):
        pool = pools.change_template(vm_template(memory=f"{version}Gi", **HALTED))
        names.append(f"pool-{pool['metadata']['generation']}")
        eventually(lambda: names[-1] in pools.revisions(), what="a revision for the new template")
    pools.hold_vm("pool-0")
    pools.scale(0)
    eventually(lambda: "deletionTimestamp" in pools.vm("pool-0")["metadata"], what="pool-0 is terminating")
    stays(lambda: pools.revisions().keys() == set(names), for_s=0.7, what="no pruning while the count is wrong")
    pools.let_vm_go("pool-0")
    eventually(lambda: pools.revisions().keys() == set(names[-6:]), what="unused revisions are pruned")


def test_p16_a_vmi_is_restarted_only_after_its_vm_has_the_new_spec(pools: PoolNamespace) -> None:
    pools.make_pool(4)
    pools.wait_ready(4)
    position = pools.plane.audit_position()
    pools.change_template(vm_template(memory="128M"))
    pools.wait_ready(4)
    patched = {each.name: each.stage_timestamp for each in done(pools, "patch", VMS, since=position)}
    deleted = {
        each.name: each.request_received_timestamp
        for each in done(pools, "delete", "virtualmachineinstances", since=position)
    }
    assert patched.keys() == deleted.keys()
    assert all(patched[name] < deleted[name] for name in patched)
    assert sorted(restarts(pools, since=position)) == sorted(patched), "each once"
