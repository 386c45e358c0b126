"""Decides what virt-api does for `start`, `stop` and `restart` of a VM, or `pause` and `unpause` of a VMI. Pure."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from sandbox.settings import BEHAVIOR

GROUP: Final = "kubevirt.io"

VIRTUAL_MACHINE, VMI = "virtualmachine", "virtualmachineinstance"
"""The resources in virt-api's error messages. virt-api uses the singular."""

_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 500: "InternalError"}


class Failure(Struct, frozen=True):
    """An error answer. `name` is the name of the VM or VMI, or "" if the error is not about a single object."""

    code: int
    message: str
    name: str = ""
    kind: str = VIRTUAL_MACHINE

    def document(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": _REASONS[self.code],
            "code": self.code,
        }
        if self.name:
            status["details"] = {"name": self.name, "group": GROUP, "kind": self.kind}
        return status


def bad_request(message: str) -> Failure:
    return Failure(400, message)


def conflict(name: str, why: str, kind: str = VIRTUAL_MACHINE) -> Failure:
    return Failure(409, f'Operation cannot be fulfilled on {kind}.{GROUP} "{name}": {why}', name, kind)


def not_found(name: str, kind: str = VIRTUAL_MACHINE) -> Failure:
    return Failure(404, f'{kind}.{GROUP} "{name}" not found', name, kind)


def internal_error(why: str) -> Failure:
    return Failure(500, f"Internal error occurred: {why}")


Document: TypeAlias = Mapping[str, Any]
Operation: TypeAlias = dict[str, Any]

FINAL: Final = ("Succeeded", "Failed")
NOT_RUNNING: Final = "VM is not running"
RECOVERY: Final = (
    "VM recovery required: Volume migration failed, leaving some volumes pointing to non-consistent targets; manual "
    "intervention is needed to reassign them to their original volumes."
)
UNDERWAY: Final = "unable to complete request: stop/start already underway"

SHORTEST_GRACE_S: Final = 1


class JsonPatch(Struct, frozen=True):
    """A JSON patch of the VM, of the VM's status, or of the VMI. All three objects have the same name."""

    target: str
    """The target of the patch: `vm`, `vm/status` or `vmi`."""

    operations: tuple[Operation, ...]


class Request(Struct, frozen=True, rename="camel"):
    paused: bool = False
    grace_period: int | None = None
    """The grace period in StopOptions."""

    grace_period_seconds: int | None = None
    """The grace period in RestartOptions."""

    dry_run: tuple[str, ...] | None = None


Answer: TypeAlias = tuple[JsonPatch, ...] | Failure


def decide(subresource: str, request: Request, vm: Document, vmi: Document | None) -> Answer:
    spec = vm.get("spec") or {}
    if spec.get("running") is not None and spec.get("runStrategy") is not None:
        return internal_error("running and runstrategy are mutually exclusive")
    name, strategy = str(vm["metadata"]["name"]), run_strategy(spec)
    return _DECISIONS[subresource](request, name, strategy, vm, vmi)


def decide_pause(subresource: str, vm: Document | None, vmi: Document) -> Answer:
    """Decide about `pause` or `unpause`. A pause is a behavior of the simulated guest (see `sandbox.behavior`)."""
    name, pauses, probe = str(vmi["metadata"]["name"]), subresource == "pause", vmi["spec"].get("livenessProbe")
    if not pauses and vm is not None and (vm.get("status") or {}).get("snapshotInProgress") is not None:
        return conflict(name, "VM snapshot is in progress", VMI)
    if _phase(vmi) != "Running":
        return conflict(name, NOT_RUNNING if pauses else "VMI is not running", VMI)
    if pauses and probe is not None and probe.get("guestAgentPing") is None:
        why = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported"
        return Failure(403, f'{VMI}.{GROUP} "{name}" is forbidden: {why}', name, VMI)
    if has_condition(vmi, "Paused") is pauses:
        return conflict(name, "VMI is already paused" if pauses else "VMI is not paused", VMI)
    path = f"/metadata/annotations/{BEHAVIOR.replace('/', '~1')}"
    return (JsonPatch("vmi", ({"op": "add", "path": path, "value": "paused" if pauses else "normal"},)),)


PAUSES: Final = ("pause", "unpause")


def run_strategy(spec: Document) -> str:
    if spec.get("running") is not None:
        return "Always" if spec["running"] else "Halted"
    return str(spec.get("runStrategy") or "Halted")


def _start(request: Request, name: str, strategy: str, vm: Document, vmi: Document | None) -> Answer:
    if vmi is not None and _phase(vmi) not in (*FINAL, "Unknown", ""):
        return conflict(name, "VM is already running")
    if has_condition(vm, "ManualRecoveryRequired"):
        return conflict(name, RECOVERY)
    start = {"action": "Start", **({"data": {"paused": "true"}} if request.paused else {})}
    if strategy == "Halted":
        return _requests(vm, start) if request.paused else (_run(vm, running=True),)
    if strategy not in ("RerunOnFailure", "Manual"):
        return conflict(name, f"{strategy} does not support manual start requests")
    phase = _phase(vmi) if vmi is not None else ""
    if strategy == "RerunOnFailure" and phase == "Failed":
        return conflict(name, f"{strategy} does not support starting VM from failed state")
    if vmi is not None and phase in FINAL:
        return _requests(vm, _stop_request(vmi), start)
    return _requests(vm, start)


def _stop(request: Request, name: str, strategy: str, vm: Document, vmi: Document | None) -> Answer:
    grace_s = request.grace_period
    running = vmi is not None and _phase(vmi) not in FINAL
    first = (_grace_patch(vmi, grace_s),) if vmi is not None and running and grace_s is not None else ()
    if strategy in ("Always", "Once"):
        return (*first, _run(vm, running=False))
    if vmi is None or not running:
        return conflict(name, NOT_RUNNING)
    present_s = vmi["spec"].get("terminationGracePeriodSeconds")
    if strategy == "Halted" and (grace_s is None or (present_s is not None and grace_s >= present_s)):
        return conflict(name, f"{strategy} only supports manual stop requests with a shorter graceperiod")
    rest = _requests(vm, _stop_request(vmi))
    return rest if isinstance(rest, Failure) else (*first, *rest)


def _restart(request: Request, name: str, strategy: str, vm: Document, vmi: Document | None) -> Answer:
    grace_s = request.grace_period_seconds
    if grace_s is not None and grace_s > 0:
        return bad_request("For force restart, only gracePeriod=0 is supported for now")
    if grace_s is not None and grace_s < 0:
        return bad_request("gracePeriod has to be greater or equal to 0")
    if has_condition(vm, "VolumesChange"):
        return conflict(name, RECOVERY)
    if strategy in ("Halted", "Once"):
        # virt-api uses this spelling.
        return conflict(name, f"RunStategy {strategy} does not support manual restart requests")
    if vmi is None:
        return conflict(name, f"{NOT_RUNNING}: Halted")
    rest = _requests(vm, _stop_request(vmi), {"action": "Start"})
    if isinstance(rest, Failure) or grace_s is None:
        return rest
    return (_grace_patch(vmi, SHORTEST_GRACE_S), *rest)


_DECISIONS: Final = {"start": _start, "stop": _stop, "restart": _restart}
SUBRESOURCES: Final = tuple(_DECISIONS)


def _requests(vm: Document, *changes: Operation) -> Answer:
    """A stop request replaces all present requests. Any other request is rejected while requests are present."""
    status = vm.get("status") or {}
    if not status:
        first = {"op": "add", "path": "/status", "value": {"stateChangeRequests": [*changes]}}
        return (JsonPatch("vm/status", (first,)),)
    present, path = status.get("stateChangeRequests"), "/status/stateChangeRequests"
    if present and [change["action"] for change in changes] != ["Stop"]:
        return internal_error(UNDERWAY)
    operations: list[Operation] = [
        {"op": "test", "path": path, "value": present},
        {"op": "replace" if present else "add", "path": path, "value": [*changes]},
    ]
    if status.get("startFailure") is not None:
        operations.append({"op": "remove", "path": "/status/startFailure"})
    return (JsonPatch("vm/status", tuple(operations)),)


def _stop_request(vmi: Document) -> Operation:
    return {"action": "Stop", "uid": vmi["metadata"]["uid"]}


def _run(vm: Document, *, running: bool) -> JsonPatch:
    spec = vm.get("spec") or {}
    if spec.get("runStrategy") is not None:
        value: Any = "Always" if running else "Halted"
        path, before = "/spec/runStrategy", spec["runStrategy"]
    else:
        path, before, value = "/spec/running", spec.get("running"), running
    return JsonPatch("vm", _replacement(path, before, value))


def _grace_patch(vmi: Document, seconds: int) -> JsonPatch:
    path, before = "/spec/terminationGracePeriodSeconds", vmi["spec"].get("terminationGracePeriodSeconds")
    return JsonPatch("vmi", _replacement(path, before, seconds))


def _replacement(path: str, before: Any, value: Any) -> tuple[Operation, ...]:
    operation = "add" if before is None else "replace"
    return {"op": "test", "path": path, "value": before}, {"op": operation, "path": path, "value": value}


def _phase(vmi: Document) -> str:
    return str((vmi.get("status") or {}).get("phase") or "")


def has_condition(obj: Document, type_: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == type_ and condition["status"] == "True" for condition in conditions)
