"""Simulates DataVolumes and their PVCs as CDI runs them, as docs/sandbox.md describes. This module is pure.

A DataVolume creates a PVC of its name, or adopts one without a controller. Very short phases are not written.
"""

from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition
from controller.apimachinery.owner_references import controller_reference
from controller.apimachinery.quantities import parse_quantity
from informers.meta import ObjectMeta, annotations_of, is_controlled_by
from informers.resource import Resource
from sandbox.behavior import SHORTEST_VISIBLE_S, creation_time
from sandbox.claims import (
    BLOCK,
    CLAIMS,
    DEFAULT_SIZE,
    WAITING,
    WAITING_PHASE,
    ClaimSpec,
    Requests,
    Resources,
    SimulatedClaim,
    waiting_phase,
)
from sandbox.settings import RESIZE, RESIZE_AFTER, SimulationSettings, read_settings
from sandbox.step import Change, Create, Delete, Patch, Step, adoption, can_be_adopted, creation, patch_of
from sandbox.vmis import Reason, SimulatedVMI

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
IN_PROGRESS: Final = "ImportInProgress"
PENDING: Final = "Pending"

DELETE_AFTER_COMPLETION: Final = "cdi.kubevirt.io/storage.deleteAfterCompletion"

FILE_SYSTEM_OVERHEAD: Final = 0.06
ALIGNMENT: Final = 2**20
"""CDI rounds the size of a disk up to a multiple of this number of bytes."""

_ANNOTATIONS_OF_CLAIM: Final = (WAITING_PHASE, RESIZE, RESIZE_AFTER)


class DataVolumeSpec(Struct, frozen=True):
    pvc: ClaimSpec | None = None
    storage: ClaimSpec | None = None


class DataVolumeStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    phase: str | None = None
    claim_name: str | None = None
    progress: str | None = None
    conditions: tuple[Condition, ...] | None = None


class SimulatedDataVolume(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DataVolumeSpec = DataVolumeSpec()
    status: DataVolumeStatus = DataVolumeStatus()


DATA_VOLUMES: Final = Resource(
    SimulatedDataVolume, group="cdi.kubevirt.io", version="v1beta1", plural="datavolumes", kind="DataVolume"
)


def phase_of_volume(volume: SimulatedDataVolume) -> str:
    return volume.status.phase or ""


def is_handed_over(claim: SimulatedClaim | None, owner: ObjectMeta) -> bool:
    """Return True if the VM `owner` controls the PVC, as after CDI has deleted a succeeded DataVolume."""
    return claim is not None and is_controlled_by(claim.metadata, owner.uid)


def volume_step(volume: SimulatedDataVolume, claim: SimulatedClaim | None, now: datetime, first_seen: datetime) -> Step:
    """Return the next step of CDI. `claim` is the PVC of its name or None. `first_seen` is an exact time."""
    meta = volume.metadata
    if meta.deletion_timestamp is not None:
        return Step()
    settings = read_settings(annotations_of(meta))
    if claim is None:
        return Step(effects=(_new_claim(volume),))
    if can_be_adopted(claim.metadata):
        return Step(effects=(adoption(CLAIMS, claim.metadata, DATA_VOLUMES, meta),))
    phase = phase_of_volume(volume)
    if phase == SUCCEEDED and annotations_of(meta).get(DELETE_AFTER_COMPLETION) == "true":
        return Step(effects=_collect(volume, claim))
    if phase in (SUCCEEDED, FAILED):
        return Step()
    waiting = waiting_phase(meta)
    if waiting and not claim.is_bound:
        return Step(write=_volume_status_patch(volume, waiting, now) if phase != waiting else None)
    usable = claim.is_bound and is_controlled_by(claim.metadata, meta.uid)
    left_s = settings.ready_after_s - (now - creation_time(meta, first_seen)).total_seconds()
    wanted = _phase(settings, usable=usable, left_s=left_s)
    # Do not write a very short phase. Pending is written only after the duration `ready-after`. The PVC may be bound
    # before that.
    is_visible = left_s <= 0 or (usable and settings.ready_after_s >= SHORTEST_VISIBLE_S * 2)
    if wanted != phase and is_visible:
        return Step(write=_volume_status_patch(volume, wanted, now))
    return Step(after_s=left_s if left_s > 0 else None)


def obstacle_of(
    vmi: SimulatedVMI, claims: Mapping[str, SimulatedClaim], volumes: Mapping[str, SimulatedDataVolume]
) -> str | None:
    """Return why the VMI cannot start with its disks: a reason, or "" while a disk is not bound or not filled.

    None if nothing is in the way. `claims` and `volumes` are those with the names of its disks.
    """
    if len(claims) < len(vmi.storage):
        return Reason.PVC_NOT_FOUND
    is_filling = any(waiting_phase(each.metadata) and phase_of_volume(each) != SUCCEEDED for each in volumes.values())
    return "" if is_filling or not all(claim.is_bound for claim in claims.values()) else None


def _collect(volume: SimulatedDataVolume, claim: SimulatedClaim) -> tuple[Change, Delete]:
    others = tuple(owner for owner in claim.metadata.owner_references or () if owner.uid != volume.metadata.uid)
    owners = (*others, *(volume.metadata.owner_references or ()))
    patch = patch_of(claim.metadata, versioned=True, metadata={"ownerReferences": owners})
    hand_over = Change(CLAIMS, claim.metadata.name, patch)
    return hand_over, Delete(DATA_VOLUMES, volume.metadata.name, volume.metadata.uid)


def _phase(settings: SimulationSettings, *, usable: bool, left_s: float) -> str:
    if not usable:
        return PENDING
    if left_s > 0 or settings.behavior == "never-ready":
        return IN_PROGRESS
    return FAILED if settings.behavior == "fail" else SUCCEEDED


def _new_claim(volume: SimulatedDataVolume) -> Create:
    spec, meta = volume.spec, volume.metadata
    requested = spec.pvc or spec.storage or ClaimSpec()
    volume_mode = requested.volume_mode or (BLOCK if spec.pvc is None else None)
    size = requested.size or DEFAULT_SIZE
    annotations = annotations_of(meta)
    metadata = {
        "name": meta.name,
        "labels": meta.labels,
        "annotations": {name: annotations[name] for name in _ANNOTATIONS_OF_CLAIM if name in annotations},
        "ownerReferences": [controller_reference(DATA_VOLUMES, meta)],
    }
    spec_of_claim = ClaimSpec(
        access_modes=requested.access_modes or ("ReadWriteOnce",),
        resources=Resources(Requests(size if spec.pvc is not None or volume_mode == BLOCK else with_overhead(size))),
        storage_class_name=requested.storage_class_name,
        volume_mode=volume_mode,
        volume_name=f"pvc-{meta.uid}",
    )
    return creation(CLAIMS, metadata, spec=spec_of_claim)


def with_overhead(size: str | int | float) -> str | int | float:
    """Return the size of a file system with room for a disk of this size, as CDI does: in bytes."""
    parsed = parse_quantity(size)
    if parsed is None:
        return size
    aligned = ceil(parsed / ALIGNMENT) * ALIGNMENT
    return str(ceil(aligned * (1 + FILE_SYSTEM_OVERHEAD)))


def _volume_status_patch(volume: SimulatedDataVolume, phase: str, now: datetime) -> Patch:
    meta = volume.metadata
    done = phase == SUCCEEDED
    is_unbound = phase in (PENDING, *WAITING)
    conditions = (
        _condition("Bound", not is_unbound, "Pending" if is_unbound else "Bound", now),
        _condition("Running", phase == IN_PROGRESS, {SUCCEEDED: "Completed", FAILED: "Error"}.get(phase, ""), now),
        _condition("Ready", done, "" if done else "TransferRunning", now),
    )
    status = DataVolumeStatus(
        phase=phase, claim_name=meta.name, progress="100.0%" if done else "N/A", conditions=conditions
    )
    return patch_of(meta, "status", versioned=True, status=status)


def _condition(type_: str, is_true: bool, reason: str, now: datetime) -> Condition:
    return Condition(type=type_, status="True" if is_true else "False", reason=reason or None, last_transition_time=now)
