"""P17: what a pool tells of itself: its conditions, one word for people, and which generation that is about."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

import pytest

from sandbox.kubectl import kubectl_path
from tests.integration.denied import denied
from tests.integration.herd import eventually, stays
from tests.integration.quota import allow
from tests.integration.ranch import Ranch, vm_template
from tests.integration.renewal import break_vm

pytestmark = pytest.mark.cluster

VMS = "virtualmachines"
JSONPATH = '-o=jsonpath={.status.printableStatus}{"\\n"}'
OURS = {"ReplicaFailure", "ReplicaPaused"}
FOREIGN = {
    "type": "example.com/Audited",
    "status": "True",
    "reason": "Weekly",
    "message": "",
    "lastProbeTime": None,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def status_writes(ranch: Ranch) -> int:
    return sum(record.subresource == "status" for record in ranch.requests("patch", "update"))


def write_status(ranch: Ranch, status: object) -> None:
    patch = json.dumps({"status": status})
    ranch.kubectl("patch", "vmpool", "pool", "--subresource=status", "--type=merge", "-p", patch)


def reason_of_failure(ranch: Ranch) -> str:
    return str((ranch.pool_condition("ReplicaFailure") or {}).get("reason", ""))


@contextmanager
def words(ranch: Ranch) -> Iterator[list[str]]:
    """Every word that the pool's status says while the block runs, each change once; complete when the block ends."""
    command = [kubectl_path(), f"--kubeconfig={ranch.plane.kubeconfig}", f"--namespace={ranch.namespace}"]
    told: list[str] = []
    with subprocess.Popen(
        [*command, "get", "vmpool", "pool", "--watch", JSONPATH], stdout=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        first = watch.stdout.readline()
        try:
            yield told
        finally:
            watch.terminate()
            rest = watch.stdout.read().splitlines()
    told += [word for word, _ in groupby([first.strip(), *rest])]


def test_p17_a_paused_pool_says_so_in_a_condition_and_two_events(ranch: Ranch) -> None:
    ranch.make_pool(1)
    ranch.wait_ready(1)
    ranch.change_pool({"spec": {"paused": True, "replicas": 3}})
    condition = eventually(lambda: ranch.pool_condition("ReplicaPaused"))
    assert (condition["status"], condition["reason"]) == ("True", "Paused")
    eventually(lambda: ranch.told("SuccessfulPaused") == {"pool": 1}, what="the Event")
    write_status(ranch, {"replicas": 7})
    eventually(lambda: ranch.pool_status()["replicas"] == 1, what="what somebody overwrote is put right")
    assert ranch.pool_condition("ReplicaPaused") == condition
    stays(lambda: len(ranch.vms()) == 1, for_s=0.5, what="nothing is created")
    ranch.change_pool({"spec": {"paused": False}})
    ranch.wait_ready(3)
    assert ranch.pool_condition("ReplicaPaused") is None
    eventually(lambda: ranch.told("SuccessfulResume") == {"pool": 1}, what="the Event")
    assert ranch.told("SuccessfulPaused") == {"pool": 1}, "told once"
    messages = {event["reason"]: event["message"] for event in ranch.events()}
    assert messages["SuccessfulPaused"] == "Pool is paused"
    assert messages["SuccessfulResume"] == "Pool is unpaused"


def test_p17_vms_that_cannot_be_created_are_a_failure_to_scale_out(ranch: Ranch) -> None:
    allow(ranch, 1, of=VMS)
    ranch.make_pool(3)
    eventually(lambda: reason_of_failure(ranch) == "FailedScaleOut", what="the condition")
    assert "exceeded quota" in (ranch.pool_condition("ReplicaFailure") or {})["message"]
    eventually(lambda: ranch.pool_status()["printableStatus"] == "Degraded")
    allow(ranch, 9, of=VMS)
    ranch.wait_ready(3)
    eventually(lambda: ranch.pool_condition("ReplicaFailure") is None, what="the condition goes")


def test_p17_vms_that_cannot_be_deleted_are_a_failure_to_scale_in(ranch: Ranch) -> None:
    ranch.make_pool(2)
    ranch.wait_ready(2)
    with denied(ranch, "DELETE", VMS, probe=("delete", "vm", "pool-0")):
        ranch.scale(1)
        eventually(lambda: reason_of_failure(ranch) == "FailedScaleIn", what="the condition")
        assert "the house says no" in (ranch.pool_condition("ReplicaFailure") or {})["message"]
        assert len(ranch.vms()) == 2
    ranch.wait_ready(1)
    eventually(lambda: ranch.pool_condition("ReplicaFailure") is None, what="the condition goes")


def test_p17_vms_that_cannot_be_changed_are_a_failure_to_update(ranch: Ranch) -> None:
    ranch.make_pool(2)
    ranch.wait_ready(2)
    with denied(ranch, "UPDATE", VMS, probe=("label", "vm", "pool-0", "probe=yes")):
        ranch.change_template(vm_template(memory="128M"))
        eventually(lambda: reason_of_failure(ranch) == "FailedUpdate", what="the condition")
        assert "the house says no" in (ranch.pool_condition("ReplicaFailure") or {})["message"]
        assert ranch.told("SuccessfulUpdate") == {}, "nothing is told that was not done"
    ranch.wait_ready(2)
    eventually(lambda: ranch.pool_condition("ReplicaFailure") is None, what="the condition goes")


def test_p17_conditions_of_others_stay_and_ours_are_two(ranch: Ranch) -> None:
    ranch.make_pool(1)
    ranch.wait_ready(1)
    write_status(ranch, {"conditions": [FOREIGN]})
    ranch.change_pool({"spec": {"paused": True}})
    eventually(lambda: ranch.pool_condition("ReplicaPaused"))
    ranch.change_pool({"spec": {"paused": False}})
    allow(ranch, 1, of=VMS)
    ranch.scale(2)
    eventually(lambda: ranch.pool_condition("ReplicaFailure"))
    conditions = {condition["type"]: condition for condition in ranch.pool_status()["conditions"]}
    assert conditions.keys() - OURS == {FOREIGN["type"]}
    assert conditions[FOREIGN["type"]].items() >= {key: value for key, value in FOREIGN.items() if value}.items()


def test_p17_one_word_says_how_a_pool_fares_along_its_life(ranch: Ranch) -> None:
    ranch.make_pool(0)
    eventually(lambda: ranch.pool_status().get("printableStatus") == "Stopped")
    with words(ranch) as told:
        ranch.scale(2)
        ranch.wait_ready(2)
        ranch.change_pool({"spec": {"paused": True}})
        eventually(lambda: ranch.pool_status()["printableStatus"] == "Paused")
        ranch.change_pool({"spec": {"paused": False}})
        eventually(lambda: ranch.pool_status()["printableStatus"] == "Running")
        ranch.change_template(vm_template(memory="128M"))
        ranch.wait_ready(2)
        eventually(lambda: ranch.pool_status()["printableStatus"] == "Running")
        ranch.scale(0)
        eventually(lambda: ranch.pool_status()["printableStatus"] == "Stopped")
    story = [word for word, _ in groupby(word for word in told if word)]
    assert story == [
        *("Stopped", "Scaling", "Running"),
        *("Paused", "Running"),
        *("Updating", "Running"),
        *("Scaling", "Stopped"),
    ]


def test_p17_a_pool_with_a_vm_that_does_not_come_up_is_degraded_and_one_that_heals_says_so(ranch: Ranch) -> None:
    ranch.make_pool(2)
    ranch.make_pool(2, name="healing", autohealing={"startUpFailureThreshold": 1})
    for name in ("pool", "healing"):
        ranch.wait_ready(2, name=name)
    ranch.hold_vm("healing-0")
    break_vm(ranch, "pool-0", "crash-loop")
    break_vm(ranch, "healing-0", "crash-loop")
    eventually(lambda: ranch.pool_status()["printableStatus"] == "Degraded")
    eventually(lambda: ranch.pool_status("healing")["printableStatus"] == "Healing")
    ranch.let_vm_go("healing-0")
    ranch.wait_ready(2, name="healing")
    eventually(lambda: ranch.pool_status("healing")["printableStatus"] == "Running")


def test_p17_kubectl_get_shows_the_columns_that_users_know_with_the_right_numbers(ranch: Ranch) -> None:
    ranch.make_pool(2)
    ranch.wait_ready(2)
    allow(ranch, 2, of=VMS)
    ranch.change_vm("pool-0", {"spec": {"runStrategy": "Halted"}})
    ranch.scale(3)
    eventually(lambda: ranch.pool_status().get("readyReplicas") == 1 and ranch.pool_condition("ReplicaFailure"))
    header, row = ranch.kubectl("get", "vmpool").stdout.splitlines()
    assert header.split() == ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]
    assert row.split()[:4] == ["pool", "3", "2", "1"]
    assert re.fullmatch(r"\d+[smh].*", row.split()[4])
    assert ranch.kubectl("get", "vmpools", "pool", "--output=name").stdout.split() == [
        "virtualmachinepool.pool.kubevirt.io/pool"
    ]


def test_p17_the_status_is_written_when_it_changes_and_only_then(ranch: Ranch) -> None:
    ranch.make_pool(3)
    ranch.wait_ready(3)
    ranch.change_vm("pool-0", {"spec": {"runStrategy": "Halted"}})
    eventually(lambda: ranch.pool_status().get("readyReplicas") == 2, what="one is not ready, for good")
    ranch.wait_until_seen()
    before = (status_writes(ranch), ranch.pool()["metadata"]["resourceVersion"])
    ranch.change_vm("pool-1", {"metadata": {"labels": {"note": "hello"}}})
    ranch.change_vmi("pool-1", {"status": {"guestOSInfo": {"name": "Fedora"}}})
    ranch.wait_until_seen()
    stays(lambda: (status_writes(ranch), ranch.pool()["metadata"]["resourceVersion"]) == before, what="no write")


def test_p17_a_status_that_the_server_refuses_is_written_later(ranch: Ranch) -> None:
    ranch.make_pool(1)
    ranch.wait_ready(1)
    probe = ("patch", "vmpool", "pool", "--subresource=status", "--type=merge", '-p={"status":{"replicas":9}}')
    with denied(ranch, "UPDATE", "virtualmachinepools/status", probe=probe):
        ranch.change_pool({"spec": {"paused": True}})
        eventually(lambda: any(record.code >= 400 for record in ranch.requests("patch")), what="it is refused")
        stays(lambda: ranch.told("SuccessfulPaused") == {}, for_s=0.5, what="nothing is told before it is true")
    eventually(lambda: ranch.pool_condition("ReplicaPaused"), what="it is tried again")
    eventually(lambda: ranch.told("SuccessfulPaused") == {"pool": 1}, what="the Event, once")


def test_p17_the_status_tells_which_generation_it_is_about(ranch: Ranch) -> None:
    ranch.make_pool(1)
    ranch.wait_ready(1)
    assert ranch.pool_status()["observedGeneration"] == 1
    changed = ranch.change_pool({"spec": {"paused": True, "replicas": 2}})
    assert changed["metadata"]["generation"] == 2
    eventually(lambda: ranch.pool_status()["observedGeneration"] == 2)
    assert ranch.pool_status()["replicas"] == 1
