"""This module computes the status of a VM in the same way as KubeVirt.

All functions of this module are pure. The status depends on the VM, on its VMI, on its storage and on the current time.
If nothing has changed since the last write, the new status equals the old status.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from sandbox.claims import SimulatedClaim, is_bound
from sandbox.conditions import Condition, Conditions, updated, without
from sandbox.datavolumes import FAILED, SUCCEEDED, SimulatedDataVolume, phase_of_volume
from sandbox.vm_revisions import SimulatedRevision
from sandbox.vmis import (
    ERR_IMAGE_PULL,
    IMAGE_PULL_BACK_OFF,
    PVC_NOT_FOUND,
    UNSCHEDULABLE,
    UNSCHEDULED_PHASES,
    SimulatedVMI,
    condition_of,
    conditions_of,
    has_run,
    is_final,
    is_paused,
    is_terminating,
    phase_of,
    problem_of,
)
from sandbox.vms import (
    ChangeRequest,
    SimulatedVM,
    StartFailure,
    VMStatus,
    data_volume_templates_of,
    generation_of,
    status_of,
    strategy_of,
    volumes_of,
)

BACKOFF_S: Final = 10
LONGEST_BACKOFF_S: Final = 300
"""The longest wait in seconds after a failed start.

As in KubeVirt, the wait is BACKOFF_S times the square of the number of failed starts, plus up to 50 %. The time scale
of the simulation shortens the wait.
"""

RESTART_REQUIRED: Final = "RestartRequired"

PROVISIONED: Final = frozenset({SUCCEEDED, "WaitForFirstConsumer", "PendingPopulation"})
"""The phases of a DataVolume in which its VM can be started."""

START, STOP = "Start", "Stop"

_RESTARTING: Final = frozenset({"Always", "RerunOnFailure", "Once"})
_OWN_CONDITIONS: Final = frozenset({"Ready", "Failure", RESTART_REQUIRED})
"""The VM's own conditions. All other conditions are copies of the VMI's conditions."""

_PROBLEM_STATUSES: Final = {
    ERR_IMAGE_PULL: "ErrImagePull",
    IMAGE_PULL_BACK_OFF: "ImagePullBackOff",
}


class RelatedObjects(Struct, frozen=True, kw_only=True):
    """The existing objects that are related to a VM.

    `vmi` is the VMI with the name of the VM. `volumes` and `claims` contain the DataVolumes and PVCs that the VM uses,
    by name. `revisions` contains the VM's ControllerRevisions, by name. `serves_data_volumes` is True if the CRD of
    DataVolumes is installed.
    """

    vmi: SimulatedVMI | None = None
    volumes: Mapping[str, SimulatedDataVolume] = {}
    claims: Mapping[str, SimulatedClaim] = {}
    revisions: Mapping[str, SimulatedRevision] = {}
    serves_data_volumes: bool = True


class Pass(Struct, frozen=True, kw_only=True):
    """The actions and findings of one run of the VM controller, before the run writes the VM's status.

    The field `starts` is True if the run creates the VMI. The field `stops` is True if the run deletes the VMI.
    `generation` is the VM generation in the VMI's annotation, or None if the VM has no VMI. `restart_message` is the
    message of the condition RestartRequired. The value "" means that no restart is needed. The value None leaves the
    condition unchanged. `failure` is the reason and the message of the condition Failure. `time_scale` shortens the
    backoff after a failed start.
    """

    starts: bool = False
    stops: bool = False
    generation: int | None = None
    restart_message: str | None = None
    failure: tuple[str, str] | None = None
    time_scale: float = 1.0


def next_status(
    vm: SimulatedVM, vmi: SimulatedVMI | None, related: RelatedObjects, now: datetime, done: Pass
) -> VMStatus:
    """Return the new status of the VM. `vmi` is the VMI that the VM controls, or None."""
    before = status_of(vm)
    ready = condition_of(vmi, "Ready") if vmi is not None else None
    requests = _requests(vm, vmi)
    started = before.run_strategy is not None or vmi is not None
    failure = _start_failure(vm, vmi, now, done.time_scale)
    return VMStatus(
        created=True if vmi is not None else None,
        ready=True if ready is not None and ready.status == "True" else None,
        printable_status=_printable(vm, vmi, related, failure, done),
        run_strategy=strategy_of(vm) if started else None,
        start_failure=failure,
        conditions=_conditions(vm, vmi, now, done),
        state_change_requests=requests or None,
        observed_generation=before.observed_generation if done.generation is None else done.generation,
        desired_generation=before.desired_generation if done.generation is None else generation_of(vm),
    )


def asks_for(vm: SimulatedVM, action: str, uid: str | None = None) -> bool:
    """Return True if the VM's first change request has this action and `uid`.

    With `uid` None, every UID matches. Later requests are ignored, because KubeVirt handles one request at a time.
    """
    requests = status_of(vm).state_change_requests or ()
    return bool(requests) and requests[0].action == action and (uid is None or requests[0].uid == uid)


def must_rerun(vm: SimulatedVM) -> bool:
    """Return True if a VM with the strategy RerunOnFailure and without a VMI must be started."""
    return asks_for(vm, START) or status_of(vm).run_strategy != strategy_of(vm)


def lacks_data_volumes(vm: SimulatedVM, related: RelatedObjects) -> bool:
    """Return True if the VM needs DataVolumes and their CRD is not installed."""
    return not related.serves_data_volumes and bool(data_volume_templates_of(vm))


def _requests(vm: SimulatedVM, vmi: SimulatedVMI | None) -> tuple[ChangeRequest, ...]:
    """Return the VM's change requests. If the first request is completed, it is left out.

    With the strategy RerunOnFailure, a failed VMI causes a new start request if no other request is left.
    """
    requests = status_of(vm).state_change_requests or ()
    if requests and _fulfilled(requests[0], vmi):
        requests = requests[1:]
    rerun = strategy_of(vm) == "RerunOnFailure" and vmi is not None and phase_of(vmi) == "Failed"
    if rerun and not requests:
        requests = (ChangeRequest(START),)
    return requests


def _fulfilled(request: ChangeRequest, vmi: SimulatedVMI | None) -> bool:
    if request.action == STOP:
        return vmi is None or request.uid != vmi.metadata.uid
    return vmi is not None and not is_terminating(vmi) and not is_final(vmi)


def _start_failure(vm: SimulatedVM, vmi: SimulatedVMI | None, now: datetime, time_scale: float) -> StartFailure | None:
    """Return the number of consecutive failed starts and the time of the next attempt, or None if no start failed.

    A start has failed if the VMI ended before the phase Running. A VMI in the phase Running resets the number to 0.
    """
    before = status_of(vm).start_failure
    if strategy_of(vm) not in _RESTARTING or (vmi is not None and has_run(vmi)):
        return None
    if vmi is None or not is_final(vmi) or (before is not None and before.last_failed_vmi_uid == vmi.metadata.uid):
        return before
    count = (before.consecutive_fail_count if before is not None else 0) + 1
    return StartFailure(
        consecutive_fail_count=count,
        last_failed_vmi_uid=vmi.metadata.uid,
        retry_after_timestamp=now + timedelta(seconds=backoff_s(count, vmi.metadata.uid) * time_scale),
    )


def backoff_s(failures: int, uid: str) -> int:
    """Return the seconds until the next start.

    KubeVirt adds a random number of seconds. The simulator adds a number that depends only on the VMI's UID.
    """
    delay = BACKOFF_S * failures**2
    return min(LONGEST_BACKOFF_S, delay + crc32(uid.encode()) % (delay // 2 + 1))


def _printable(
    vm: SimulatedVM, vmi: SimulatedVMI | None, related: RelatedObjects, failure: StartFailure | None, done: Pass
) -> str:
    """Return the printableStatus. If several statuses apply, return the first of them in KubeVirt's order."""
    if vm.metadata.deletion_timestamp is not None:
        return "Terminating"
    problem = problem_of(vmi) if vmi is not None else ""
    if vmi is not None and not is_final(vmi):
        if is_terminating(vmi) or done.stops:
            return "Stopping"
        if phase_of(vmi) == "Running":
            return "Paused" if is_paused(vmi) else "Running"
    if problem == PVC_NOT_FOUND:
        return "ErrorPvcNotFound"
    volumes = [related.volumes.get(volume.data_volume.name or "") for volume in volumes_of(vm) if volume.data_volume]
    phases = {phase_of_volume(volume) for volume in volumes if volume is not None}
    if FAILED in phases:
        return "DataVolumeError"
    if problem == UNSCHEDULABLE:
        return "ErrorUnschedulable"
    if phases - PROVISIONED:
        return "Provisioning"
    claims = [related.claims.get(volume.claim) for volume in volumes_of(vm)]
    if _should_start(vm, vmi) and any(claim is not None and not is_bound(claim) for claim in claims):
        return "WaitingForVolumeBinding"
    if problem in _PROBLEM_STATUSES:
        return _PROBLEM_STATUSES[problem]
    if done.starts or (vmi is not None and (phase_of(vmi) in UNSCHEDULED_PHASES or phase_of(vmi) == "Scheduled")):
        return "Starting"
    if failure is not None and strategy_of(vm) in _RESTARTING and (vmi is None or is_final(vmi)):
        return "CrashLoopBackOff"
    return "Stopped" if vmi is None or is_final(vmi) else "Unknown"


def _should_start(vm: SimulatedVM, vmi: SimulatedVMI | None) -> bool:
    match strategy_of(vm):
        case "Always":
            return True
        case "Manual":
            return asks_for(vm, START) if vmi is None else not asks_for(vm, STOP, vmi.metadata.uid)
        case "RerunOnFailure":
            return must_rerun(vm) if vmi is None else phase_of(vmi) != "Succeeded"
        case "Once":
            return vmi is None
        case _:
            return False


def _conditions(vm: SimulatedVM, vmi: SimulatedVMI | None, now: datetime, done: Pass) -> Conditions:
    """Return the VM's own conditions (Ready, Failure and RestartRequired) and copies of the VMI's other conditions.

    The copies keep their times. After the end of the VMI, the copies stay until the next VMI exists.
    """
    conditions = _with_restart_required(status_of(vm).conditions or (), now, done)
    conditions = updated(conditions, _ready(vmi, now))
    if done.failure is not None:
        reason, message = done.failure
        conditions = updated(conditions, _true("Failure", now, reason=reason, message=message))
    else:
        conditions = without(conditions, "Failure")
    if vmi is None:
        return conditions
    copied = [condition for condition in conditions_of(vmi) if condition.type not in _OWN_CONDITIONS]
    for condition in copied:
        conditions = updated(conditions, condition)
    kept = _OWN_CONDITIONS | {condition.type for condition in copied}
    return tuple(condition for condition in conditions if condition.type in kept)


def _with_restart_required(conditions: Conditions, now: datetime, done: Pass) -> Conditions:
    if done.restart_message:
        return updated(conditions, _true(RESTART_REQUIRED, now, message=done.restart_message))
    is_over = done.starts or done.stops or done.restart_message == ""
    return without(conditions, RESTART_REQUIRED) if is_over else conditions


def _ready(vmi: SimulatedVMI | None, now: datetime) -> Condition:
    if vmi is None:
        absent = Condition(type="Ready", status="False", reason="VMINotExists", message="VMI does not exist")
    else:
        ready = condition_of(vmi, "Ready")
        if ready is not None:
            return ready
        message = "VMI is missing the Ready condition"
        absent = Condition(type="Ready", status="False", reason="VMIConditionMissing", message=message)
    return msgspec.structs.replace(absent, last_probe_time=now, last_transition_time=now)


def _true(type_: str, now: datetime, *, message: str, reason: str | None = None) -> Condition:
    return Condition(type=type_, status="True", reason=reason, message=message, last_transition_time=now)
