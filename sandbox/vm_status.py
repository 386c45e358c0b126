"""What KubeVirt says of a VM: its status, as a function of the VM, its VMI and its storage. Pure.

The same world gives the same status: what was written already, such as a time or a count, is taken over from there.
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
from sandbox.vmis import (
    ERR_IMAGE_PULL,
    FINAL,
    IMAGE_PULL_BACK_OFF,
    PVC_NOT_FOUND,
    UNPLACED,
    UNSCHEDULABLE,
    Condition,
    SimulatedVMI,
    condition_of,
    history_of,
    phase_of,
    trouble_of,
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
from sandbox.wishes import read_wishes

BACKOFF_S: Final = 0.5
LONGEST_BACKOFF_S: Final = 15.0
"""KubeVirt waits 10 s after the first failed start, then 10 s times the square of the failures, at most 5 minutes. Here
all of it takes a twentieth of the time."""

PROVISIONED: Final = frozenset({SUCCEEDED, "WaitForFirstConsumer", "PendingPopulation"})
"""The phases of a DataVolume with which a VM can be started."""

START, STOP = "Start", "Stop"

_RESTARTING: Final = frozenset({"Always", "RerunOnFailure", "Once"})
_TROUBLES: Final = {
    ERR_IMAGE_PULL: "ErrImagePull",
    IMAGE_PULL_BACK_OFF: "ImagePullBackOff",
}


class Around(Struct, frozen=True, kw_only=True):
    """What matters to a VM: the VMI of its name, and whatever has the names that `storage_of` gives."""

    vmi: SimulatedVMI | None = None
    volumes: Mapping[str, SimulatedDataVolume] = {}
    claims: Mapping[str, SimulatedClaim] = {}
    serves_data_volumes: bool = True


def next_status(vm: SimulatedVM, vmi: SimulatedVMI | None, around: Around, now: datetime) -> VMStatus:
    """The status that it should have; `vmi` is its own, not one that happens to have the name."""
    before = status_of(vm)
    ready = condition_of(vmi, "Ready") if vmi is not None else None
    requests = _requests(vm, vmi)
    started = before.run_strategy is not None or vmi is not None
    made_from = annotations_of(vmi.metadata).get(GENERATION, "") if vmi is not None else ""
    failure = _start_failure(vm, vmi, now)
    return VMStatus(
        created=True if vmi is not None else None,
        ready=True if ready is not None and ready.status == "True" else None,
        printable_status=_printable(vm, vmi, around, failure),
        run_strategy=strategy_of(vm) if started else None,
        start_failure=failure,
        conditions=_conditions(vm, vmi, around, now),
        state_change_requests=requests or None,
        observed_generation=int(made_from) if made_from.isdecimal() else before.observed_generation,
        desired_generation=vm.metadata.generation if vmi is not None else before.desired_generation,
    )


def asks_for(vm: SimulatedVM, action: str, uid: str | None = None) -> bool:
    """Whether the first request is this one; KubeVirt looks at one at a time."""
    requests = status_of(vm).state_change_requests or ()
    return bool(requests) and requests[0].action == action and (uid is None or requests[0].uid == uid)


def is_final(vmi: SimulatedVMI) -> bool:
    return phase_of(vmi) in FINAL


def is_going(vmi: SimulatedVMI) -> bool:
    return vmi.metadata.deletion_timestamp is not None


def lacks_data_volumes(vm: SimulatedVM, around: Around) -> bool:
    """Whether it wants DataVolumes where there is no such kind."""
    return not around.serves_data_volumes and bool(data_volume_templates_of(vm))


def _requests(vm: SimulatedVM, vmi: SimulatedVMI | None) -> tuple[ChangeRequest, ...]:
    """The requests without one that is fulfilled, and with one to start what failed, where it is to be rerun."""
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
    return vmi is not None and not is_going(vmi) and not is_final(vmi)


def _start_failure(vm: SimulatedVM, vmi: SimulatedVMI | None, now: datetime) -> StartFailure | None:
    """How often in a row it did not come up. KubeVirt counts a VMI that ended before it ran, and the first that runs
    ends the row. Here a VMI that is asked to `crash-loop` counts as one that never ran."""
    before = status_of(vm).start_failure
    if strategy_of(vm) not in _RESTARTING or (vmi is not None and _ran(vmi)):
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


def _ran(vmi: SimulatedVMI) -> bool:
    if read_wishes(annotations_of(vmi.metadata)).behavior == "crash-loop":
        return False
    return any(transition.phase == "Running" for transition in history_of(vmi))


def _printable(vm: SimulatedVM, vmi: SimulatedVMI | None, around: Around, failure: StartFailure | None) -> str:
    """The status in one word: of all that are true, the first in KubeVirt's order."""
    if vm.metadata.deletion_timestamp is not None:
        return "Terminating"
    trouble = trouble_of(vmi) if vmi is not None else ""
    if vmi is not None and not is_final(vmi):
        if is_going(vmi):
            return "Stopping"
        if phase_of(vmi) == "Running":
            return "Running"
    if trouble == PVC_NOT_FOUND:
        return "ErrorPvcNotFound"
    volumes = [around.volumes.get(volume.data_volume.name or "") for volume in volumes_of(vm) if volume.data_volume]
    phases = {phase_of_volume(volume) for volume in volumes if volume is not None}
    if FAILED in phases:
        return "DataVolumeError"
    if trouble == UNSCHEDULABLE:
        return "ErrorUnschedulable"
    if phases - PROVISIONED:
        return "Provisioning"
    claims = [around.claims.get(volume.claim) for volume in volumes_of(vm)]
    if _set_to_start(vm, vmi) and any(claim is not None and not is_bound(claim) for claim in claims):
        return "WaitingForVolumeBinding"
    if trouble in _TROUBLES:
        return _TROUBLES[trouble]
    if vmi is not None and (phase_of(vmi) in UNPLACED or phase_of(vmi) == "Scheduled"):
        return "Starting"
    if failure is not None and strategy_of(vm) in _RESTARTING and (vmi is None or is_final(vmi)):
        return "CrashLoopBackOff"
    return "Stopped" if vmi is None or is_final(vmi) else "Unknown"


def _set_to_start(vm: SimulatedVM, vmi: SimulatedVMI | None) -> bool:
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


def _conditions(vm: SimulatedVM, vmi: SimulatedVMI | None, around: Around, now: datetime) -> tuple[Condition, ...]:
    """Ready, whatever else the VMI says, and Failure, where the VM cannot even be started.

    As in KubeVirt, a condition is written anew when its status or its reason changes, with the VMI's times.
    """
    wanted = [_ready(vmi, now)]
    if lacks_data_volumes(vm, around):
        why = "Error encountered while creating DataVolumes: the server could not find the requested resource"
        wanted.append(
            Condition(type="Failure", status="True", reason="FailedCreate", message=why, last_transition_time=now)
        )
    if vmi is not None and vmi.status is not None:
        wanted += [condition for condition in vmi.status.conditions or () if condition.type != "Ready"]
    held = {condition.type: condition for condition in status_of(vm).conditions or ()}
    return tuple(_kept(held.get(condition.type), condition) for condition in wanted)


def _kept(held: Condition | None, wanted: Condition) -> Condition:
    same = held is not None and held.status == wanted.status and held.reason == wanted.reason
    return held if held is not None and same else wanted


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
