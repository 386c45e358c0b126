"""P17: the status of a pool: its conditions, the printable status, and the observed generation."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.integration.controller_process import (
    PATIENT_LEASE,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    stays,
    steady,
)
from tests.integration.denied import denied
from tests.integration.pool_namespace import PoolNamespace, vm_template
from tests.integration.quota import allow
from tests.integration.versions import versions

pytestmark = pytest.mark.cluster

VMS = "virtualmachines"
OURS = {"ReplicaFailure", "Reconciling"}
FOREIGN = {
    "type": "example.com/Audited",
    "status": "True",
    "reason": "Weekly",
    "message": "",
    "lastProbeTime": None,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def status_writes(pools: PoolNamespace) -> int:
    return sum(record.subresource == "status" for record in pools.requests("patch", "update"))


def path_of(pools: PoolNamespace) -> str:
    return f"/apis/pool.kubevirt.io/v1beta1/namespaces/{pools.namespace}/virtualmachinepools"


def write_status(pools: PoolNamespace, status: dict[str, Any]) -> None:
    pools.ask("PATCH", f"{path_of(pools)}/pool/status", {"status": status})


def reason_of_failure(pools: PoolNamespace) -> str:
    return str((pools.pool_condition("ReplicaFailure") or {}).get("reason", ""))


def test_p17_a_paused_pool_says_so_in_a_condition_and_two_events(pools: PoolNamespace) -> None:
    pools.make_pool(1)
    pools.wait_ready(1)
    pools.change_pool({"spec": {"paused": True, "replicas": 3}})
    condition = eventually(lambda: pools.pool_condition("ReplicaPaused"))
    assert (condition["status"], condition["reason"]) == ("True", "SuccessfulPaused")
    assert condition["message"] == "Pool controller is paused"
    eventually(lambda: pools.told("SuccessfulPaused") == {"pool": 1}, what="the Event")
    write_status(pools, {"replicas": 7})
    eventually(lambda: pools.pool_status()["replicas"] == 1, what="the overwritten count is corrected")
    assert pools.pool_condition("ReplicaPaused") == condition
    stays(lambda: len(pools.vms()) == 1, for_s=0.5, what="nothing is created")
    pools.change_pool({"spec": {"paused": False}})
    pools.wait_ready(3)
    assert pools.pool_condition("ReplicaPaused") is None
    eventually(lambda: pools.told("SuccessfulResume") == {"pool": 1}, what="the Event")
    assert pools.told("SuccessfulPaused") == {"pool": 1}, "told once"
    messages = {event["reason"]: event["message"] for event in pools.events()}
    assert messages["SuccessfulPaused"] == "Pool is paused"
    assert messages["SuccessfulResume"] == "Pool is unpaused"


def test_p17_vms_that_cannot_be_created_are_a_failure_to_scale_out(pools: PoolNamespace) -> None:
    allow(pools, 1, of=VMS)
    pools.make_pool(3)
    eventually(lambda: reason_of_failure(pools) == "FailedScaleOut", what="the condition")
    message = (pools.pool_condition("ReplicaFailure") or {})["message"]
    assert message.startswith("error during scale out: ")
    assert "exceeded quota" in message
    eventually(lambda: pools.told("FailedScaleOut") == {"pool": 1}, what="the Event")
    [event] = [each for each in pools.events() if each["reason"] == "FailedScaleOut"]
    assert (event["type"], event["message"]) == ("Warning", message)
    eventually(lambda: pools.pool_status()["printableStatus"] == "Degraded")
    allow(pools, 9, of=VMS)
    pools.wait_ready(3)
    eventually(lambda: pools.pool_condition("ReplicaFailure") is None, what="the condition goes")


def test_p17_the_status_of_a_pool_says_that_its_vms_cannot_start(
    idle_namespace: ReplicaSetNamespace, tmp_path: Path
) -> None:
    pools = PoolNamespace(idle_namespace.plane, idle_namespace.namespace)
    cause = {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": "no such instancetype"}

    def write_vm_status(name: str, *conditions: dict[str, str]) -> None:
        pools.change_vm_status(name, {"printableStatus": "Stopped", "conditions": list(conditions)})

    with controller_process(idle_namespace.plane, tmp_path, *PATIENT_LEASE):
        pools.make_pool(2)
        pools.wait_for_ordinals(0, 1, ready=False)
        for name in ("pool-0", "pool-1"):
            write_vm_status(name, cause)
        told = "2 of 2 virtual machines cannot start; pool-0: no such instancetype"
        eventually(
            lambda: (pools.pool_condition("VirtualMachineFailure") or {}).get("message") == told, what="the condition"
        )
        assert pools.pool_status()["printableStatus"] == "Degraded"
        eventually(lambda: pools.told("VirtualMachineFailure") == {"pool": 1}, what="one Event")
        for name in ("pool-0", "pool-1"):
            write_vm_status(name)
        eventually(lambda: pools.pool_condition("VirtualMachineFailure") is None, what="the condition goes")
        assert pools.told("VirtualMachineFailure") == {"pool": 1}, "told once"


def test_p17_foreign_conditions_stay_and_two_conditions_are_ours(pools: PoolNamespace) -> None:
    pools.make_pool(1)
    pools.wait_ready(1)
    write_status(pools, {"conditions": [FOREIGN]})
    pools.change_pool({"spec": {"paused": True}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"))
    pools.change_pool({"spec": {"paused": False}})
    allow(pools, 1, of=VMS)
    pools.scale(2)
    eventually(lambda: pools.pool_condition("ReplicaFailure"))
    conditions = {condition["type"]: condition for condition in pools.pool_status()["conditions"]}
    assert conditions.keys() - OURS == {FOREIGN["type"]}
    assert conditions["Reconciling"]["message"] == conditions["ReplicaFailure"]["message"]
    assert conditions[FOREIGN["type"]].items() >= {key: value for key, value in FOREIGN.items() if value}.items()


def test_p17_the_printable_status_follows_the_life_of_a_pool(pools: PoolNamespace) -> None:
    pools.make_pool(0)
    eventually(lambda: pools.pool_status().get("printableStatus") == "Stopped")
    with versions(pools, path_of(pools)) as seen:
        pools.scale(2)
        pools.wait_ready(2)
        pools.change_pool({"spec": {"paused": True}})
        eventually(lambda: pools.pool_status()["printableStatus"] == "Paused")
        pools.change_pool({"spec": {"paused": False}})
        eventually(lambda: pools.pool_status()["printableStatus"] == "Running")
        pools.change_template(vm_template(memory="128M"))
        pools.wait_ready(2)
        eventually(lambda: pools.pool_status()["printableStatus"] == "Running")
        pools.scale(0)
        eventually(lambda: pools.pool_status()["printableStatus"] == "Stopped")
    story = [word for word, _ in groupby(each["status"].get("printableStatus") for each in seen)]
    assert story == [
        *("Stopped", "Scaling", "Running"),
        *("Paused", "Running"),
        *("Updating", "Running"),
        *("Scaling", "Stopped"),
    ]


def test_p17_kubectl_get_shows_the_columns_that_users_know_with_the_right_numbers(pools: PoolNamespace) -> None:
    pools.make_pool(2)
    pools.wait_ready(2)
    allow(pools, 2, of=VMS)
    pools.change_vm("pool-0", {"spec": {"runStrategy": "Halted"}})
    pools.scale(3)
    eventually(lambda: pools.pool_status().get("readyReplicas") == 1 and pools.pool_condition("ReplicaFailure"))
    header, row = pools.kubectl("get", "vmpool").stdout.splitlines()
    assert header.split() == ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]
    assert row.split()[:4] == ["pool", "3", "2", "1"]
    assert re.fullmatch(r"\d+[smh].*", row.split()[4])
    assert pools.kubectl("get", "vmpools", "pool", "--output=name").stdout.split() == [
        "virtualmachinepool.pool.kubevirt.io/pool"
    ]


def test_p17_the_status_is_written_when_it_changes_and_only_then(pools: PoolNamespace) -> None:
    pools.make_pool(3)
    pools.wait_ready(3)
    pools.change_vm("pool-0", {"spec": {"runStrategy": "Halted"}})
    eventually(lambda: pools.pool_status().get("readyReplicas") == 2, what="one VM stays unready")
    pools.wait_until_seen()
    before = steady(lambda: (status_writes(pools), pools.pool()["metadata"]["resourceVersion"]))
    pools.change_vm("pool-1", {"metadata": {"labels": {"note": "hello"}}})
    pools.change_vmi("pool-1", {"status": {"guestOSInfo": {"name": "Fedora"}}})
    pools.wait_until_seen()
    stays(lambda: (status_writes(pools), pools.pool()["metadata"]["resourceVersion"]) == before, what="no write")


def test_p17_a_status_that_the_server_refuses_is_written_later(pools: PoolNamespace) -> None:
    pools.make_pool(1)
    pools.wait_ready(1)
    with denied(pools, "UPDATE", "virtualmachinepools/status", name="pool"):
        pools.change_pool({"spec": {"paused": True}})
        eventually(lambda: any(record.code >= 400 for record in pools.requests("patch")), what="the write is refused")
        stays(lambda: pools.told("SuccessfulPaused") == {}, for_s=0.5, what="no Event before the status is written")
    eventually(lambda: pools.pool_condition("ReplicaPaused"), what="the write is retried")
    eventually(lambda: pools.told("SuccessfulPaused") == {"pool": 1}, what="one Event")


def test_p17_the_status_has_the_observed_generation(pools: PoolNamespace) -> None:
    pools.make_pool(1)
    pools.wait_ready(1)
    assert pools.pool_status()["observedGeneration"] == 1
    changed = pools.change_pool({"spec": {"paused": True, "replicas": 2}})
    assert changed["metadata"]["generation"] == 2
    eventually(lambda: pools.pool_status()["observedGeneration"] == 2)
    assert pools.pool_status()["replicas"] == 1
