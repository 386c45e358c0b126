"""This module decides about the binding, the growth and the deletion of a simulated PVC.

All functions of this module are pure.

A PVC is bound at once: it gets a PersistentVolume of its own. With the annotation `sim.vmherd.dev/waiting-phase`, the
PVC is bound when a VMI uses it. A deleted PVC stays while a VMI uses it.

The API server decides whether the request of a PVC may grow: the PVC must be bound, and its storage class must have
`allowVolumeExpansion: true`. The growth has these states, with the same fields as in a real cluster:

1. The condition Resizing. It lasts for the time in the annotation `sim.vmherd.dev/resize-after`.
2. The PersistentVolume has the new size. A PVC with the volumeMode Filesystem has the condition
   FileSystemResizePending until a running VMI uses it, because the kubelet grows the file system.
3. `status.capacity` has the new size, and the conditions are gone.

The annotation `sim.vmherd.dev/resize` of a PVC has the value `hang` or `fail`. The PVC then stays in state 1. With
`fail`, the PVC gets the condition ControllerResizeError.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from controller.apimachinery.quantities import parse_quantity
from informers.meta import annotations_of
from sandbox.claims import (
    BLOCK,
    Requests,
    SimulatedClaim,
    bound_patch,
    claim_patch,
    is_awaiting_user,
    is_bound,
    named_patch,
    released_patch,
    requested_size,
    spec_of,
)
from sandbox.conditions import Condition, Conditions, find, updated, without
from sandbox.persistent_volumes import PersistentVolume, create, grow
from sandbox.settings import SimulationSettings, read_settings
from sandbox.step import Patch, Step
from sandbox.vmis import SimulatedVMI, phase_of

RESIZING: Final = "Resizing"
FILE_SYSTEM_PENDING: Final = "FileSystemResizePending"
FAILED: Final = "ControllerResizeError"

_PENDING_MESSAGE: Final = "Waiting for user to (re-)start a pod to finish file system resize of volume on node."
_FAILED_MESSAGE: Final = (
    "failed to expand pvc with rpc error: code = OutOfRange desc = the requested size exceeds the limit of the storage"
)


def claim_step(
    claim: SimulatedClaim, volume: PersistentVolume | None, users: Collection[SimulatedVMI], now: datetime
) -> Step:
    """Return the step that binds or grows the PVC, or that removes the protection finalizer of a deleted, unused PVC.

    `volume` is the PersistentVolume that the PVC names, or None. `users` are the VMIs that refer to the PVC.
    """
    if claim.metadata.deletion_timestamp is not None:
        return Step(write=released_patch(claim, users))
    settings = read_settings(annotations_of(claim.metadata))
    if is_bound(claim):
        return _growth(claim, volume, users, settings, now)
    if is_awaiting_user(claim, users) or settings.behavior == "never-ready":
        return Step(warnings=settings.warnings)
    if not spec_of(claim).volume_name:
        return Step(write=named_patch(claim), warnings=settings.warnings)
    if volume is not None and volume.claim.uid != claim.metadata.uid:
        return Step(warnings=settings.warnings)  # the volume of a deleted PVC with this name goes first
    effects = () if volume is not None else (create(claim),)
    return Step(effects=effects, write=bound_patch(claim), warnings=settings.warnings)


def is_growing(claim: SimulatedClaim) -> bool:
    """Return True if the bound PVC requests more than its capacity."""
    if claim.status is None or not is_bound(claim):
        return False
    wanted, present = _parsed(requested_size(spec_of(claim))), _size(claim.status.capacity)
    return wanted is not None and present is not None and wanted > present


def _growth(
    claim: SimulatedClaim,
    volume: PersistentVolume | None,
    users: Collection[SimulatedVMI],
    settings: SimulationSettings,
    now: datetime,
) -> Step:
    size = requested_size(spec_of(claim))
    if claim.status is None or size is None or not is_growing(claim):
        return Step(warnings=settings.warnings)
    conditions = claim.status.conditions or ()
    began = find(conditions, RESIZING)
    if began is None or _size(claim.status.allocated_resources) != _parsed(size):
        others = _without_resize(conditions)
        status = _status((*others, _condition(RESIZING, now)), "ControllerResizeInProgress")
        return _write(claim_patch(claim, status=status | {"allocatedResources": {"storage": size}}), settings)
    if settings.resize == "hang":
        return Step(warnings=settings.warnings)
    left_s = settings.resize_after_s - (now - (began.last_transition_time or now)).total_seconds()
    if left_s > 0:
        return Step(after_s=left_s, warnings=settings.warnings)
    if settings.resize == "fail":
        return _write(_refusal(claim, conditions, now), settings)
    grown = () if volume is None or _size(volume.spec.capacity) == _parsed(size) else (grow(volume, size),)
    if spec_of(claim).volume_mode != BLOCK and not any(phase_of(vmi) == "Running" for vmi in users):
        pending = updated(without(conditions, FAILED), _condition(FILE_SYSTEM_PENDING, now, _PENDING_MESSAGE))
        write = claim_patch(claim, status=_status(pending, "NodeResizePending")) if pending != conditions else None
        return Step(effects=grown, write=write, warnings=settings.warnings)
    finished = _status(_without_resize(conditions), None) | {"capacity": {"storage": size}}
    return Step(effects=grown, write=claim_patch(claim, status=finished), warnings=settings.warnings)


def _refusal(claim: SimulatedClaim, conditions: Conditions, now: datetime) -> Patch | None:
    failed = updated(conditions, _condition(FAILED, now, _FAILED_MESSAGE))
    return claim_patch(claim, status=_status(failed, "ControllerResizeInfeasible")) if failed != conditions else None


def _write(patch: Patch | None, settings: SimulationSettings) -> Step:
    return Step(write=patch, warnings=settings.warnings)


def _status(conditions: Conditions, state: str | None) -> dict[str, Any]:
    """Return the fields of the status. `state` is the progress of the resize, or None if the resize has finished."""
    return {"conditions": conditions, "allocatedResourceStatuses": {"storage": state} if state else None}


def _without_resize(conditions: Conditions) -> Conditions:
    return tuple(each for each in conditions if each.type not in (RESIZING, FILE_SYSTEM_PENDING, FAILED))


def _condition(type_: str, now: datetime, message: str | None = None) -> Condition:
    return Condition(type=type_, status="True", message=message, last_transition_time=now)


def _size(requests: Requests | None) -> Fraction | None:
    return _parsed(requests.storage) if requests is not None else None


def _parsed(size: str | int | float | None) -> Fraction | None:
    return parse_quantity(size) if size is not None else None
