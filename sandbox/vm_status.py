"""Computes the status of a VM as KubeVirt does, from the VM, its VMI, its storage and the current time. It is pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from controller.apimachinery.conditions import Condition
from controller.kubevirt.vm_types import RESTART_REQUIRED, ControllerRevision
from informers.meta import is_controlled_by
from sandbox.claims import WAITING, SimulatedClaim
from sandbox.datavolumes import FAILED, SUCCEEDED, SimulatedDataVolume, phase_of_volume
from sandbox.instance_types import Definition
from sandbox.settings import SimulationSettings
from sandbox.step import Conditions, updated, without
from sandbox.vmis import UNSCHEDULED_PHASES, Reason, SimulatedVMI
from sandbox.vms import ChangeRequest, SimulatedVM, StartFailure, VMStatus

BACKOFF_S: Final = 10
LONGEST_BACKOFF_S: Final = 300
"""In seconds. A wait is BACKOFF_S times the square of the failed starts, plus up to 50 %, times the time scale."""

PROVISIONED: Final = frozenset({SUCCEEDED, "WaitForFirstConsumer", "PendingPopulation"})
"""The phases of a DataVolume in which its VM can be started."""

START, STOP = "Start", "Stop"

_RESTARTING: Final = frozenset({"Always", "RerunOnFailure", "Once"})
_OWN_CONDITIONS: Final = frozenset({"Ready", "Failure", RESTART_REQUIRED})
"""The VM's own conditions. All other conditions are copies of the VMI's conditions."""


class RelatedObjects(Struct, frozen=True, kw_only=True):
    """The objects that are related to a VM, by name, and whether the CRD of DataVolumes is installed. `definitions` are
    its instance type and its preference, by field.
    """

    vmi: SimulatedVMI | None = None
    volumes: Mapping[str, SimulatedDataVolume] = {}
    claims: Mapping[str, SimulatedClaim] = {}
    revisions: Mapping[str, ControllerRevision] = {}
    serves_data_volumes: bool = True
    definitions: Mapping[str, Definition] = {}


class Situation(Struct, frozen=True):
    vm: SimulatedVM
    related: RelatedObjects
    now: datetime
    settings: SimulationSettings

    @property
    def own_vmi(self) -> SimulatedVMI | None:
        vmi = self.related.vmi
        return vmi if vmi is not None and is_controlled_by(vmi.metadata, self.vm.metadata.uid) else None


class Pass(Struct, frozen=True, kw_only=True):
    """The actions and findings of one run of the VM controller, before the run writes the VM's status.

    The run creates the VMI if `starts`, and deletes it if `stops`. `generation` is that in the VMI's annotation, or
    None. `restart_message` is that of the condition RestartRequired, "" if no restart is needed, and None if nothing
    changes. `failure` is the reason and the message of the condition Failure.
    """

    starts: bool = False
    stops: bool = False
    generation: int | None = None
    restart_message: str | None = None
    failure: tuple[str, str] | None = None


def next_status(situation: Situation, done: Pass) -> VMStatus:
    vm, vmi, now = situation.vm, situation.own_vmi, situation.now
    before = vm.status
    ready = vmi.condition("Ready") if vmi is not None else None
    requests = _requests(vm, vmi)
    started = before.run_strategy is not None or vmi is not None
    failure = _start_failure(situation)
    return VMStatus(
        created=True if vmi is not None else None,
        ready=True if ready is not None and ready.status == "True" else None,
        printable_status=_printable(situation, failure, done),
        run_strategy=vm.strategy if started else None,
        start_failure=failure,
        conditions=_conditions(vm, vmi, now, done),
        state_change_requests=requests or None,
        observed_generation=before.observed_generation if done.generation is None else done.generation,
        desired_generation=before.desired_generation if done.generation is None else vm.generation,
    )


def asks_for(vm: SimulatedVM, action: str, uid: str | None = None) -> bool:
    requests = vm.status.state_change_requests or ()
    return bool(requests) and requests[0].action == action and (uid is None or requests[0].uid == uid)


def must_rerun(vm: SimulatedVM) -> bool:
    return asks_for(vm, START) or vm.status.run_strategy != vm.strategy


def _requests(vm: SimulatedVM, vmi: SimulatedVMI | None) -> tuple[ChangeRequest, ...]:
    """A failed VMI with the strategy RerunOnFailure causes a new start request if no other one is left."""
    requests = vm.status.state_change_requests or ()
    if requests and _fulfilled(requests[0], vmi):
        requests = requests[1:]
    rerun = vm.strategy == "RerunOnFailure" and vmi is not None and vmi.phase == "Failed"
    if rerun and not requests:
        requests = (ChangeRequest(START),)
    return requests


def _fulfilled(request: ChangeRequest, vmi: SimulatedVMI | None) -> bool:
    if request.action == STOP:
        return vmi is None or request.uid != vmi.metadata.uid
    return vmi is not None and not vmi.is_terminating and not vmi.is_final


def _start_failure(situation: Situation) -> StartFailure | None:
    """Return the number of consecutive starts that ended before the phase Running, and the time of the next attempt."""
    vm, vmi = situation.vm, situation.own_vmi
    before = vm.status.start_failure
    if vm.strategy not in _RESTARTING or (vmi is not None and vmi.has_run):
        return None
    if vmi is None or not vmi.is_final or (before is not None and before.last_failed_vmi_uid == vmi.metadata.uid):
        return before
    count = (before.consecutive_fail_count if before is not None else 0) + 1
    wait_s = backoff_s(count, vmi.metadata.uid) * situation.settings.time_scale
    return StartFailure(
        consecutive_fail_count=count,
        last_failed_vmi_uid=vmi.metadata.uid,
        retry_after_timestamp=situation.now + timedelta(seconds=wait_s),
    )


def backoff_s(failures: int, uid: str) -> int:
    """KubeVirt adds a random number of seconds. The simulator adds a number that depends only on the VMI's UID."""
    delay = BACKOFF_S * failures**2
    return min(LONGEST_BACKOFF_S, delay + crc32(uid.encode()) % (delay // 2 + 1))


def _printable(situation: Situation, failure: StartFailure | None, done: Pass) -> str:
    """Return the printableStatus. If several statuses apply, return the first of them in KubeVirt's order."""
    vm, vmi, related = situation.vm, situation.own_vmi, situation.related
    if vm.metadata.deletion_timestamp is not None:
        return "Terminating"
    problem = vmi.problem if vmi is not None else ""
    if vmi is not None and not vmi.is_final:
        if vmi.is_terminating or done.stops:
            return "Stopping"
        if vmi.phase == "Running":
            still = "Paused" if vmi.has("Paused") else "Running"
            return "Migrating" if vmi.is_migrating else still
    if problem == Reason.PVC_NOT_FOUND:
        return "ErrorPvcNotFound"
    volumes = [related.volumes.get(volume.data_volume.name or "") for volume in vm.volumes if volume.data_volume]
    phases = {phase_of_volume(volume) for volume in volumes if volume is not None}
    if FAILED in phases:
        return "DataVolumeError"
    if problem == Reason.UNSCHEDULABLE:
        return "ErrorUnschedulable"
    if phases - PROVISIONED:
        return "Provisioning"
    claims = [related.claims.get(volume.claim) for volume in vm.volumes]
    is_unbound = any(claim is not None and not claim.is_bound for claim in claims)
    # CDI binds the claim of such a DataVolume when the disk is filled.
    if _should_start(vm, vmi) and (is_unbound or not phases.isdisjoint(WAITING)):
        return "WaitingForVolumeBinding"
    if problem in (Reason.ERR_IMAGE_PULL, Reason.IMAGE_PULL_BACK_OFF):
        return problem
    if done.starts or (vmi is not None and (vmi.phase in UNSCHEDULED_PHASES or vmi.phase == "Scheduled")):
        return "Starting"
    if failure is not None and vm.strategy in _RESTARTING and (vmi is None or vmi.is_final):
        return "CrashLoopBackOff"
    return "Stopped" if vmi is None or vmi.is_final else "Unknown"


def _should_start(vm: SimulatedVM, vmi: SimulatedVMI | None) -> bool:
    match vm.strategy:
        case "Always":
            return True
        case "Manual":
            return asks_for(vm, START) if vmi is None else not asks_for(vm, STOP, vmi.metadata.uid)
        case "RerunOnFailure":
            return must_rerun(vm) if vmi is None else vmi.phase != "Succeeded"
        case "Once":
            return vmi is None
        case _:
            return False


def _conditions(vm: SimulatedVM, vmi: SimulatedVMI | None, now: datetime, done: Pass) -> Conditions:
    """Return the VM's own conditions, and copies of the other conditions of its VMI, which outlive the VMI."""
    conditions = _with_restart_required(vm.status.conditions or (), now, done)
    conditions = updated(conditions, _ready(vmi, now))
    if done.failure is not None:
        reason, message = done.failure
        conditions = updated(conditions, _true("Failure", now, reason=reason, message=message))
    else:
        conditions = without(conditions, "Failure")
    if vmi is None:
        return conditions
    copied = [condition for condition in vmi.conditions if condition.type not in _OWN_CONDITIONS]
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
        ready = vmi.condition("Ready")
        if ready is not None:
            return ready
        message = "VMI is missing the Ready condition"
        absent = Condition(type="Ready", status="False", reason="VMIConditionMissing", message=message)
    return msgspec.structs.replace(absent, last_probe_time=now, last_transition_time=now)


def _true(type_: str, now: datetime, *, message: str, reason: str | None = None) -> Condition:
    return Condition(type=type_, status="True", reason=reason, message=message, last_transition_time=now)
