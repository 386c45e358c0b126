"""This module computes the status of a VM, as KubeVirt would write the status.

All functions of this module are pure. The status depends on the VM, on its VMI, on its storage and on the current time.
If nothing has changed since the last write, the new status equals the old status, including all times and counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from informers.meta import annotations_of
from sandbox.datavolumes import (
    FAILED,
    SUCCEEDED,
    SimulatedClaim,
    SimulatedDataVolume,
    is_bound,
    phase_of_volume,
)
from sandbox.settings import read_settings
from sandbox.vmis import (
    ERR_IMAGE_PULL,
    FINAL_PHASES,
    IMAGE_PULL_BACK_OFF,
    PVC_NOT_FOUND,
    UNSCHEDULABLE,
    UNSCHEDULED_PHASES,
    Condition,
    SimulatedVMI,
    condition_of,
    history_of,
    phase_of,
    problem_of,
)
from sandbox.vms import (
    GENERATION,
    ChangeRequest,
    SimulatedVM,
    StartFailure,
    VMStatus,
    data_volume_templates_of,
    status_of,
    strategy_of,
    volumes_of,
)

BACKOFF_S: Final = 0.5
LONGEST_BACKOFF_S: Final = 15.0
"""The seconds of the longest wait after a failed start.

The wait is BACKOFF_S seconds times the square of the number of failed starts, and at most LONGEST_BACKOFF_S seconds. In
KubeVirt, both times are 20 times longer: 10 seconds and 5 minutes.
"""

PROVISIONED: Final = frozenset({SUCCEEDED, "WaitForFirstConsumer", "PendingPopulation"})
"""The phases of a DataVolume in which a VM that uses the DataVolume can be started."""

START, STOP = "Start", "Stop"

_RESTARTING: Final = frozenset({"Always", "RerunOnFailure", "Once"})
_PROBLEM_STATUSES: Final = {
    ERR_IMAGE_PULL: "ErrImagePull",
    IMAGE_PULL_BACK_OFF: "ImagePullBackOff",
}


class RelatedObjects(Struct, frozen=True, kw_only=True):
    """The existing objects that are related to a VM.

    `vmi` is the VMI with the name of the VM. `volumes` and `claims` contain by name the DataVolumes and PVCs that
    `storage_of` names. `serves_data_volumes` says whether the definition of DataVolumes is installed.
    """

    vmi: SimulatedVMI | None = None
    volumes: Mapping[str, SimulatedDataVolume] = {}
    claims: Mapping[str, SimulatedClaim] = {}
    serves_data_volumes: bool = True


def next_status(vm: SimulatedVM, vmi: SimulatedVMI | None, related: RelatedObjects, now: datetime) -> VMStatus:
    """Return the status that the VM should have.

    `vmi` is the VMI that the VM controls, or None. A VMI that only has the name of the VM must not be passed.
    """
    before = status_of(vm)
    ready = condition_of(vmi, "Ready") if vmi is not None else None
    requests = _requests(vm, vmi)
    started = before.run_strategy is not None or vmi is not None
    vmi_generation = annotations_of(vmi.metadata).get(GENERATION, "") if vmi is not None else ""
    failure = _start_failure(vm, vmi, now)
    return VMStatus(
        created=True if vmi is not None else None,
        ready=True if ready is not None and ready.status == "True" else None,
        printable_status=_printable(vm, vmi, related, failure),
        run_strategy=strategy_of(vm) if started else None,
        start_failure=failure,
        conditions=_conditions(vm, vmi, related, now),
        state_change_requests=requests or None,
        observed_generation=int(vmi_generation) if vmi_generation.isdecimal() else before.observed_generation,
        desired_generation=vm.metadata.generation if vmi is not None else before.desired_generation,
    )


def asks_for(vm: SimulatedVM, action: str, uid: str | None = None) -> bool:
    """Return True if the VM's first change request asks for this action, and for this VMI UID if `uid` is not None.

    Later requests are ignored, because KubeVirt handles one request at a time.
    """
    requests = status_of(vm).state_change_requests or ()
    return bool(requests) and requests[0].action == action and (uid is None or requests[0].uid == uid)


def is_final(vmi: SimulatedVMI) -> bool:
    return phase_of(vmi) in FINAL_PHASES


def is_terminating(vmi: SimulatedVMI) -> bool:
    return vmi.metadata.deletion_timestamp is not None


def lacks_data_volumes(vm: SimulatedVM, related: RelatedObjects) -> bool:
    """Return True if the VM needs DataVolumes but the definition of DataVolumes is not installed."""
    return not related.serves_data_volumes and bool(data_volume_templates_of(vm))


def _requests(vm: SimulatedVM, vmi: SimulatedVMI | None) -> tuple[ChangeRequest, ...]:
    """Return the VM's change requests. The first request is removed if it is fulfilled.

    If no request is left, the strategy is RerunOnFailure and the VMI has failed, return a new request to start.
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


def _start_failure(vm: SimulatedVM, vmi: SimulatedVMI | None, now: datetime) -> StartFailure | None:
    """Return the number of consecutive failed starts and the time of the next attempt, or None if no start failed.

    A start has failed if the VMI ended before it reached the phase Running. The first VMI that reaches Running resets
    the number to 0. A VMI with the simulated behavior `crash-loop` is treated as if it never reached Running.
    """
    before = status_of(vm).start_failure
    if strategy_of(vm) not in _RESTARTING or (vmi is not None and _reached_running(vmi)):
        return None
    if vmi is None or not is_final(vmi) or (before is not None and before.last_failed_vmi_uid == vmi.metadata.uid):
        return before
    count = (before.consecutive_fail_count if before is not None else 0) + 1
    delay_s = min(LONGEST_BACKOFF_S, BACKOFF_S * count**2)
    return StartFailure(
        consecutive_fail_count=count,
        last_failed_vmi_uid=vmi.metadata.uid,
        retry_after_timestamp=now + timedelta(seconds=delay_s),
    )


def _reached_running(vmi: SimulatedVMI) -> bool:
    if read_settings(annotations_of(vmi.metadata)).behavior == "crash-loop":
        return False
    return any(transition.phase == "Running" for transition in history_of(vmi))


def _printable(vm: SimulatedVM, vmi: SimulatedVMI | None, related: RelatedObjects, failure: StartFailure | None) -> str:
    """Return the printableStatus. If several statuses apply, return the first of them in KubeVirt's order."""
    if vm.metadata.deletion_timestamp is not None:
        return "Terminating"
    problem = problem_of(vmi) if vmi is not None else ""
    if vmi is not None and not is_final(vmi):
        if is_terminating(vmi):
            return "Stopping"
        if phase_of(vmi) == "Running":
            return "Running"
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
    if vmi is not None and (phase_of(vmi) in UNSCHEDULED_PHASES or phase_of(vmi) == "Scheduled"):
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
            return vmi is None or phase_of(vmi) != "Succeeded"
        case "Once":
            return vmi is None
        case _:
            return False


def _conditions(
    vm: SimulatedVM, vmi: SimulatedVMI | None, related: RelatedObjects, now: datetime
) -> tuple[Condition, ...]:
    """Return the VM's conditions: Ready, all other conditions of the VMI, and Failure if DataVolumes are not available.

    As in KubeVirt, a condition is replaced only when its status or its reason changes. A condition that is copied from
    the VMI has the times of the VMI's condition.
    """
    wanted = [_ready(vmi, now)]
    if lacks_data_volumes(vm, related):
        why = "Error encountered while creating DataVolumes: the server could not find the requested resource"
        wanted.append(
            Condition(type="Failure", status="True", reason="FailedCreate", message=why, last_transition_time=now)
        )
    if vmi is not None and vmi.status is not None:
        wanted += [condition for condition in vmi.status.conditions or () if condition.type != "Ready"]
    present = {condition.type: condition for condition in status_of(vm).conditions or ()}
    return tuple(_unchanged_or_new(present.get(condition.type), condition) for condition in wanted)


def _unchanged_or_new(present: Condition | None, wanted: Condition) -> Condition:
    same = present is not None and present.status == wanted.status and present.reason == wanted.reason
    return present if present is not None and same else wanted


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
