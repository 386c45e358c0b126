"""virt-api's answers to the subresources of VMs and VMIs: the patches that it sends, or its error."""

from typing import Any, TypeAlias

import pytest

from sandbox.virt_api.lifecycle import Answer, Failure, Request, decide, decide_pause

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


Sent: TypeAlias = tuple[str, tuple[dict[str, Any], ...]]
"""The target of a patch, and its operations."""


def patches(answer: Answer) -> list[Sent]:
    assert not isinstance(answer, Failure), answer
    return [(patch.target, patch.operations) for patch in answer]


def requested(*requests: dict[str, Any]) -> Sent:
    """The patch that adds these state change requests to a VM's status.

    The status must have no such requests before.
    """
    operations = ({"op": "test", "path": CHANGES, "value": None}, {"op": "add", "path": CHANGES, "value": [*requests]})
    return "vm/status", operations


MIGRATING = vm(conditions=[{"type": "VolumesChange", "status": "True"}])
RECOVERY = vm(conditions=[{"type": "ManualRecoveryRequired", "status": "True"}])
NO_RESTART = "RunStategy {} does not support manual restart requests"
NO_START = "{} does not support manual start requests"
SHORTER_ONLY = "Halted only supports manual stop requests with a shorter graceperiod"


@pytest.mark.parametrize(
    ("subresource", "request_", "subject", "running", "code", "why"),
    [
        *(("restart", Request(), vm(each), vmi(), 409, NO_RESTART.format(each)) for each in ("Halted", "Once")),
        ("restart", Request(), vm(), None, 409, "VM is not running: Halted"),
        ("restart", Request(), vm(stateChangeRequests=[START]), vmi(), 500, "stop/start already underway"),
        ("restart", Request(), MIGRATING, vmi(), 409, "VM recovery required"),
        ("restart", Request(grace_period_seconds=-1), vm(), vmi(), 400, "greater or equal to 0"),
        ("restart", Request(grace_period_seconds=5), vm(), vmi(), 400, "only gracePeriod=0 is supported"),
        ("restart", Request(), vm(running=True), vmi(), 500, "running and runstrategy are mutually exclusive"),
        ("start", Request(), RECOVERY, None, 409, "VM recovery required"),
        ("start", Request(), vm("Manual"), vmi(), 409, "VM is already running"),
        ("start", Request(), vm("Always"), vmi("Failed"), 409, NO_START.format("Always")),
        ("start", Request(), vm("Once"), vmi("Succeeded"), 409, NO_START.format("Once")),
        ("start", Request(), vm("RerunOnFailure"), vmi("Failed"), 409, "support starting VM from failed state"),
        *(
            ("stop", Request(), vm(each), vmi("Succeeded"), 409, "VM is not running")
            for each in ("Manual", "RerunOnFailure", "Halted")
        ),
        ("stop", Request(), vm("Halted"), vmi(grace_s=60), 409, SHORTER_ONLY),
        ("stop", Request(grace_period=60), vm("Halted"), vmi(grace_s=60), 409, SHORTER_ONLY),
    ],
)
def test_a_request_that_virt_api_refuses(
    subresource: str, request_: Request, subject: dict[str, Any], running: dict[str, Any] | None, code: int, why: str
) -> None:
    answer = decide(subresource, request_, subject, running)
    assert isinstance(answer, Failure), answer
    assert (answer.code, why in answer.message) == (code, True), answer.message
    if code == 409:
        assert answer.message.startswith('Operation cannot be fulfilled on virtualmachine.kubevirt.io "web-0": ')


GRACE = "/spec/terminationGracePeriodSeconds"
SHORTER = ({"op": "test", "path": GRACE, "value": 180}, {"op": "replace", "path": GRACE, "value": 1})
FIRST_STATUS = ("vm/status", ({"op": "add", "path": "/status", "value": {"stateChangeRequests": [START]}},))
STOP_INSTEAD = (
    "vm/status",
    ({"op": "test", "path": CHANGES, "value": [START]}, {"op": "replace", "path": CHANGES, "value": [STOP]}),
)


def changed(field: str, before: object, value: object) -> Sent:
    path = f"/spec/{field}"
    return "vm", ({"op": "test", "path": path, "value": before}, {"op": "replace", "path": path, "value": value})


@pytest.mark.parametrize(
    ("subresource", "request_", "subject", "running", "sent"),
    [
        *(
            ("restart", Request(), vm(each), vmi(), [requested(STOP, START)])
            for each in ("Always", "RerunOnFailure", "Manual")
        ),
        (
            "restart",
            Request(grace_period_seconds=0),
            vm(),
            vmi(grace_s=180),
            [("vmi", SHORTER), requested(STOP, START)],
        ),
        ("start", Request(), {**vm("Manual"), "status": {}}, None, [FIRST_STATUS]),
        ("start", Request(), vm("Halted"), None, [changed("runStrategy", "Halted", "Always")]),
        ("start", Request(), vm(None, running=False), None, [changed("running", False, True)]),
        ("start", Request(paused=True), vm("Halted"), None, [requested({**START, "data": {"paused": "true"}})]),
        ("start", Request(), vm("Manual"), vmi("Failed"), [requested(STOP, START)]),
        *(
            ("stop", Request(), vm(each), vmi(), [changed("runStrategy", each, "Halted")])
            for each in ("Always", "Once")
        ),
        ("stop", Request(), vm("Manual", stateChangeRequests=[START]), vmi(), [STOP_INSTEAD]),
        ("stop", Request(grace_period=1), vm("Halted"), vmi(grace_s=180), [("vmi", SHORTER), requested(STOP)]),
    ],
)
def test_a_request_that_virt_api_carries_out_with_patches(
    subresource: str, request_: Request, subject: dict[str, Any], running: dict[str, Any] | None, sent: list[Sent]
) -> None:
    assert patches(decide(subresource, request_, subject, running)) == sent


def test_a_request_removes_the_counted_start_failures() -> None:
    failing = vm("Manual", startFailure={"consecutiveFailCount": 2})
    [(_, operations)] = patches(decide("start", Request(), failing, None))
    assert operations[-1] == {"op": "remove", "path": "/status/startFailure"}


IS_PAUSED = [{"type": "Paused", "status": "True"}]
PROBED = {"livenessProbe": {"tcpSocket": {"port": 22}}}


@pytest.mark.parametrize(
    ("subresource", "subject", "spec", "status", "code", "why"),
    [
        ("pause", None, {}, {"conditions": IS_PAUSED}, 409, "VMI is already paused"),
        ("pause", None, {}, {"phase": "Scheduled"}, 409, "VM is not running"),
        ("pause", None, PROBED, {}, 403, "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported"),
        ("unpause", None, {}, {}, 409, "VMI is not paused"),
        ("unpause", None, {}, {"phase": "Failed"}, 409, "VMI is not running"),
        ("unpause", vm(snapshotInProgress="x"), {}, {"conditions": IS_PAUSED}, 409, "VM snapshot is in progress"),
    ],
)
def test_a_pause_that_virt_api_refuses(
    subresource: str, subject: dict[str, Any] | None, spec: dict[str, Any], status: dict[str, Any], code: int, why: str
) -> None:
    running = vmi()
    running["spec"] |= spec
    running["status"] |= status
    answer = decide_pause(subresource, subject, running)
    assert isinstance(answer, Failure)
    assert (answer.code, answer.kind) == (code, "virtualmachineinstance")
    assert answer.message.endswith(why)


@pytest.mark.parametrize(("subresource", "conditions"), [("pause", []), ("unpause", IS_PAUSED)])
def test_a_pause_changes_the_behavior_of_the_guest(subresource: str, conditions: list[dict[str, Any]]) -> None:
    running = vmi()
    running["status"]["conditions"] = conditions
    [(target, [operation])] = patches(decide_pause(subresource, None, running))
    assert (target, operation["path"]) == ("vmi", "/metadata/annotations/sim.vmherd.dev~1behavior")
    assert operation["value"] == {"pause": "paused", "unpause": "normal"}[subresource]
