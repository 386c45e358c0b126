"""virt-api's answers to the subresources start, stop and restart: the patches that it sends, or its error."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.virt_api.answers import Failure
from sandbox.virt_api.lifecycle import Answer, Request, decide

UID = "0b5f6d1e"
CHANGES = "/status/stateChangeRequests"
START = {"action": "Start"}
STOP = {"action": "Stop", "uid": UID}


def vm(strategy: str | None = "Always", *, running: bool | None = None, **status: Any) -> dict[str, Any]:
    spec = {name: value for name, value in {"runStrategy": strategy, "running": running}.items() if value is not None}
    return {"metadata": {"name": "web-0"}, "spec": spec, "status": {"printableStatus": "Running", **status}}


def vmi(phase: str = "Running", *, grace_s: int | None = None) -> dict[str, Any]:
    spec = {} if grace_s is None else {"terminationGracePeriodSeconds": grace_s}
    return {"metadata": {"name": "web-0", "uid": UID}, "spec": spec, "status": {"phase": phase}}


def patches(answer: Answer) -> list[tuple[str, tuple[dict[str, Any], ...]]]:
    assert not isinstance(answer, Failure), answer
    return [(patch.target, patch.operations) for patch in answer]


def requested(*requests: dict[str, Any]) -> tuple[str, tuple[dict[str, Any], ...]]:
    """The patch that adds these state change requests to a VM's status.

    The status must have no such requests before.
    """
    operations = ({"op": "test", "path": CHANGES, "value": None}, {"op": "add", "path": CHANGES, "value": [*requests]})
    return "vm/status", operations


def refusal(answer: Answer) -> tuple[int, str]:
    assert isinstance(answer, Failure), answer
    return answer.code, answer.message


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Manual"])
def test_a_restart_asks_to_stop_this_vmi_and_to_start_again(strategy: str) -> None:
    assert patches(decide("restart", Request(), vm(strategy), vmi())) == [requested(STOP, START)]


@pytest.mark.parametrize("strategy", ["Halted", "Once"])
def test_a_restart_is_refused_for_a_strategy_that_would_not_start_the_vm_again(strategy: str) -> None:
    message = (
        'Operation cannot be fulfilled on virtualmachine.kubevirt.io "web-0": '
        f"RunStategy {strategy} does not support manual restart requests"
    )
    assert refusal(decide("restart", Request(), vm(strategy), vmi())) == (409, message)


def test_a_restart_is_refused_without_a_vmi() -> None:
    code, message = refusal(decide("restart", Request(), vm(), None))
    assert (code, message.partition(": ")[2]) == (409, "VM is not running: Halted")


def test_a_restart_is_refused_while_another_request_is_underway() -> None:
    message = "Internal error occurred: unable to complete request: stop/start already underway"
    assert refusal(decide("restart", Request(), vm(stateChangeRequests=[START]), vmi())) == (500, message)


def test_a_restart_is_refused_during_a_volume_migration() -> None:
    migrating = vm(conditions=[{"type": "VolumesChange", "status": "True"}])
    assert refusal(decide("restart", Request(), migrating, vmi()))[0] == 409


def test_a_forced_restart_shortens_the_grace_period_of_the_vmi_first() -> None:
    path = "/spec/terminationGracePeriodSeconds"
    shorter = ({"op": "test", "path": path, "value": 180}, {"op": "replace", "path": path, "value": 1})
    answer = decide("restart", Request(grace_period_seconds=0), vm(), vmi(grace_s=180))
    assert patches(answer) == [("vmi", shorter), requested(STOP, START)]


@pytest.mark.parametrize("seconds", [-1, 5])
def test_a_restart_with_another_grace_period_is_a_bad_request(seconds: int) -> None:
    assert refusal(decide("restart", Request(grace_period_seconds=seconds), vm(), vmi()))[0] == 400


def test_a_request_removes_the_counted_start_failures() -> None:
    failing = vm("Manual", startFailure={"consecutiveFailCount": 2})
    [(_, operations)] = patches(decide("start", Request(), failing, None))
    assert operations[-1] == {"op": "remove", "path": "/status/startFailure"}


def test_a_request_to_a_vm_without_a_status_adds_the_status() -> None:
    fresh = {**vm("Manual"), "status": {}}
    [(_, operations)] = patches(decide("start", Request(), fresh, None))
    assert operations == ({"op": "add", "path": "/status", "value": {"stateChangeRequests": [START]}},)


def test_a_start_of_a_halted_vm_changes_its_run_strategy() -> None:
    [(target, operations)] = patches(decide("start", Request(), vm("Halted"), None))
    assert (target, operations[-1]) == ("vm", {"op": "replace", "path": "/spec/runStrategy", "value": "Always"})


def test_a_start_of_a_vm_that_uses_running_changes_running() -> None:
    [(target, operations)] = patches(decide("start", Request(), vm(None, running=False), None))
    assert (target, operations[-1]) == ("vm", {"op": "replace", "path": "/spec/running", "value": True})


def test_a_paused_start_of_a_halted_vm_is_a_request() -> None:
    paused = {**START, "data": {"paused": "true"}}
    assert patches(decide("start", Request(paused=True), vm("Halted"), None)) == [requested(paused)]


def test_a_manual_vm_whose_vmi_has_ended_is_stopped_and_started() -> None:
    assert patches(decide("start", Request(), vm("Manual"), vmi("Failed"))) == [requested(STOP, START)]


@pytest.mark.parametrize(
    ("strategy", "phase", "why"),
    [
        ("Manual", "Running", "VM is already running"),
        ("Always", "Failed", "Always does not support manual start requests"),
        ("Once", "Succeeded", "Once does not support manual start requests"),
        ("RerunOnFailure", "Failed", "RerunOnFailure does not support starting VM from failed state"),
    ],
)
def test_a_start_is_refused(strategy: str, phase: str, why: str) -> None:
    code, message = refusal(decide("start", Request(), vm(strategy), vmi(phase)))
    assert (code, message.partition(": ")[2]) == (409, why)


@pytest.mark.parametrize("strategy", ["Always", "Once"])
def test_a_stop_halts_a_vm_that_would_start_again(strategy: str) -> None:
    [(target, operations)] = patches(decide("stop", Request(), vm(strategy), vmi()))
    assert (target, operations[-1]) == ("vm", {"op": "replace", "path": "/spec/runStrategy", "value": "Halted"})


def test_a_stop_of_a_manual_vm_replaces_the_present_requests() -> None:
    [(target, operations)] = patches(decide("stop", Request(), vm("Manual", stateChangeRequests=[START]), vmi()))
    assert target == "vm/status"
    assert operations == (
        {"op": "test", "path": CHANGES, "value": [START]},
        {"op": "replace", "path": CHANGES, "value": [STOP]},
    )


@pytest.mark.parametrize("strategy", ["Manual", "RerunOnFailure", "Halted"])
def test_a_stop_is_refused_if_the_vm_does_not_run(strategy: str) -> None:
    code, message = refusal(decide("stop", Request(), vm(strategy), vmi("Succeeded")))
    assert (code, message.partition(": ")[2]) == (409, "VM is not running")


def test_a_second_stop_needs_a_shorter_grace_period() -> None:
    stopping = vm("Halted")
    assert refusal(decide("stop", Request(), stopping, vmi(grace_s=60)))[0] == 409
    assert refusal(decide("stop", Request(grace_period=60), stopping, vmi(grace_s=60)))[0] == 409
    assert len(patches(decide("stop", Request(grace_period=1), stopping, vmi(grace_s=60)))) == 2


def test_a_vm_with_both_running_and_run_strategy_is_an_internal_error() -> None:
    assert refusal(decide("restart", Request(), vm(running=True), vmi()))[0] == 500
