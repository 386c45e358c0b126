"""This module simulates DataVolumes as CDI runs them, and their PersistentVolumeClaims (PVCs).

All functions of this module are pure.

For each DataVolume, a PVC with the same name is created. The DataVolume is the controller of the PVC. The DataVolume
adopts an existing PVC without a controller. The DataVolume succeeds when the PVC is bound and the duration in the
annotation `sim.vmherd.dev/ready-after` is over. Before that, the DataVolume is in phase Pending or ImportInProgress.
Very short phases are not written.

A PVC is bound at once. A deleted PVC stays while a VMI uses the PVC. In a real cluster, kube-controller-manager binds
PVCs and protects PVCs in use.

The annotation `sim.vmherd.dev/waiting-phase` of a DataVolume simulates a storage class with the volumeBindingMode
WaitForFirstConsumer. Until a VMI uses the PVC, the PVC is unbound, and the DataVolume stays in the phase from the
annotation.

A DataVolume with CDI's annotation `cdi.kubevirt.io/storage.deleteAfterCompletion: "true"` is deleted after it has
succeeded. The owners of the DataVolume then own its PVC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from informers.meta import ObjectMeta, OwnerReference, annotations_of
from informers.resource import Resource
from sandbox.behavior import SHORTEST_VISIBLE_S, creation_time
from sandbox.conditions import Condition
from sandbox.ownership import adoption_patch, can_be_adopted, controlled_by, is_controlled_by
from sandbox.settings import SimulationSettings, read_settings
from sandbox.step import Change, Create, Delete, Patch, Step
from sandbox.vmis import FINAL_PHASES, SimulatedVMI, phase_of

PROTECTION: Final = "kubernetes.io/pvc-protection"
"""The name of the finalizer that the API server adds to every PVC."""

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
IN_PROGRESS: Final = "ImportInProgress"
PENDING: Final = "Pending"

WAITING: Final = ("WaitForFirstConsumer", "PendingPopulation")
"""The phases of a DataVolume that waits for a VMI. CDI uses PendingPopulation for storage with volume populators."""

WAITING_PHASE: Final = "sim.vmherd.dev/waiting-phase"
"""The annotation with the phase in which a DataVolume waits.

Its PVC has the annotation too. The value is one of `WAITING`.
"""

DELETE_AFTER_COMPLETION: Final = "cdi.kubevirt.io/storage.deleteAfterCompletion"

DEFAULT_SIZE: Final = "1Gi"
"""If a DataVolume has no size, its new PVC requests this size."""


class _Requests(Struct, frozen=True):
    storage: str | int | float | None = None


class _Resources(Struct, frozen=True, omit_defaults=True):
    requests: _Requests | None = None


class ClaimSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The spec of a PVC, or the field `pvc` or `storage` of a DataVolume's spec.

    In a DataVolume, every field is optional.
    """

    access_modes: tuple[str, ...] | None = None
    resources: _Resources | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str | None = None


class ClaimStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    phase: str | None = None
    access_modes: tuple[str, ...] | None = None
    capacity: _Requests | None = None


class SimulatedClaim(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


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
    spec: DataVolumeSpec | None = None
    status: DataVolumeStatus | None = None


DATA_VOLUMES: Final = Resource(
    SimulatedDataVolume, group="cdi.kubevirt.io", version="v1beta1", plural="datavolumes", kind="DataVolume"
)
CLAIMS: Final = Resource(
    SimulatedClaim, group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim"
)


class _NewMeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class _New(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    metadata: _NewMeta
    spec: ClaimSpec


class _Meta(Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    resource_version: str
    finalizers: tuple[str, ...] | UnsetType = UNSET
    owner_references: tuple[OwnerReference, ...] | UnsetType = UNSET


class _Body(Struct, frozen=True):
    metadata: _Meta
    status: ClaimStatus | DataVolumeStatus | UnsetType = UNSET


_encode: Final = msgspec.json.Encoder().encode


def phase_of_volume(volume: SimulatedDataVolume) -> str:
    return (volume.status.phase or "") if volume.status is not None else ""


def is_bound(claim: SimulatedClaim) -> bool:
    return claim.status is not None and claim.status.phase == "Bound"


def waiting_phase(meta: ObjectMeta) -> str:
    """Return the phase in which the DataVolume waits for its first consumer, or ""."""
    phase = annotations_of(meta).get(WAITING_PHASE, "")
    return phase if phase in WAITING else ""


def is_handed_over(claim: SimulatedClaim | None, owner: ObjectMeta) -> bool:
    """Return True if the VM `owner` controls the PVC.

    The VM becomes the controller of the PVC when CDI deletes a succeeded DataVolume.
    """
    return claim is not None and is_controlled_by(claim.metadata, owner)


def volume_step(volume: SimulatedDataVolume, claim: SimulatedClaim | None, now: datetime, first_seen: datetime) -> Step:
    """Return the next step of CDI for this DataVolume.

    `claim` is the PVC with the name of the DataVolume, or None. `first_seen` is the time at which the simulator first
    saw the DataVolume.
    """
    meta = volume.metadata
    if meta.deletion_timestamp is not None:
        return Step()
    settings = read_settings(annotations_of(meta))
    if claim is None:
        return Step(effects=(Create(CLAIMS, _new_claim(volume)),), warnings=settings.warnings)
    if can_be_adopted(claim.metadata):
        owner = controlled_by(DATA_VOLUMES, meta)
        return Step(
            effects=(Change(CLAIMS, meta.name, adoption_patch(claim.metadata, owner)),), warnings=settings.warnings
        )
    phase = phase_of_volume(volume)
    if phase == SUCCEEDED and annotations_of(meta).get(DELETE_AFTER_COMPLETION) == "true":
        return Step(effects=_collect(volume, claim))
    if phase in (SUCCEEDED, FAILED):
        return Step(warnings=settings.warnings)
    waiting = waiting_phase(meta)
    if waiting and not is_bound(claim):
        write = _volume_status_patch(volume, waiting, now) if phase != waiting else None
        return Step(write=write, warnings=settings.warnings)
    usable = is_bound(claim) and is_controlled_by(claim.metadata, meta)
    left_s = settings.ready_after_s - (now - creation_time(meta, first_seen)).total_seconds()
    wanted = _phase(settings, usable=usable, left_s=left_s)
    # Do not write a very short phase. Pending is written only after the duration `ready-after`. The PVC may be bound
    # before that.
    is_visible = left_s <= 0 or (usable and settings.ready_after_s >= SHORTEST_VISIBLE_S * 2)
    if wanted != phase and is_visible:
        return Step(write=_volume_status_patch(volume, wanted, now), warnings=settings.warnings)
    return Step(after_s=left_s if left_s > 0 else None, warnings=settings.warnings)


def claim_step(claim: SimulatedClaim, users: Iterable[SimulatedVMI]) -> Step:
    """Return the step that binds the PVC, or that removes the protection finalizer of a deleted and unused PVC.

    `users` are the VMIs that refer to the PVC.
    """
    meta = claim.metadata
    if meta.deletion_timestamp is not None:
        if PROTECTION not in (meta.finalizers or ()) or any(phase_of(vmi) not in FINAL_PHASES for vmi in users):
            return Step()
        others = tuple(name for name in meta.finalizers or () if name != PROTECTION)
        meta_patch = _Meta(uid=meta.uid, resource_version=meta.resource_version, finalizers=others)
        return Step(write=Patch(_encode(_Body(meta_patch))))
    settings = read_settings(annotations_of(meta))
    is_waiting = waiting_phase(meta) and all(phase_of(vmi) in FINAL_PHASES for vmi in users)
    if is_bound(claim) or is_waiting or settings.behavior == "never-ready":
        return Step(warnings=settings.warnings)
    spec = claim.spec or ClaimSpec()
    requests = spec.resources.requests if spec.resources is not None else None
    bound = ClaimStatus(phase="Bound", access_modes=spec.access_modes, capacity=requests)
    meta_patch = _Meta(uid=meta.uid, resource_version=meta.resource_version)
    return Step(write=Patch(_encode(_Body(meta_patch, bound)), "status"), warnings=settings.warnings)


def _collect(volume: SimulatedDataVolume, claim: SimulatedClaim) -> tuple[Change, Delete]:
    """Return two effects: the owners of the DataVolume become owners of the PVC, and the DataVolume is deleted."""
    others = tuple(owner for owner in claim.metadata.owner_references or () if owner.uid != volume.metadata.uid)
    owners = (*others, *(volume.metadata.owner_references or ()))
    meta = claim.metadata
    patch = _Meta(uid=meta.uid, resource_version=meta.resource_version, owner_references=owners)
    hand_over = Change(CLAIMS, meta.name, Patch(_encode(_Body(patch))))
    return hand_over, Delete(DATA_VOLUMES, volume.metadata.name, volume.metadata.uid)


def _phase(settings: SimulationSettings, *, usable: bool, left_s: float) -> str:
    if not usable:
        return PENDING
    if left_s > 0 or settings.behavior == "never-ready":
        return IN_PROGRESS
    return FAILED if settings.behavior == "fail" else SUCCEEDED


def _new_claim(volume: SimulatedDataVolume) -> bytes:
    spec = volume.spec or DataVolumeSpec()
    requested = spec.pvc or spec.storage or ClaimSpec()
    size = (
        requested.resources.requests.storage
        if requested.resources is not None and requested.resources.requests
        else None
    )
    meta = _NewMeta(
        name=volume.metadata.name,
        labels=volume.metadata.labels,
        annotations={WAITING_PHASE: phase} if (phase := waiting_phase(volume.metadata)) else None,
        owner_references=(controlled_by(DATA_VOLUMES, volume.metadata),),
    )
    spec_of_claim = ClaimSpec(
        access_modes=requested.access_modes or ("ReadWriteOnce",),
        resources=_Resources(_Requests(size or DEFAULT_SIZE)),
        storage_class_name=requested.storage_class_name,
        volume_mode=requested.volume_mode,
        volume_name=f"pvc-{volume.metadata.uid}",
    )
    return _encode(_New(CLAIMS.api_version, CLAIMS.kind, meta, spec_of_claim))


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
    meta_patch = _Meta(uid=meta.uid, resource_version=meta.resource_version)
    return Patch(_encode(_Body(meta_patch, status)), "status")


def _condition(type_: str, is_true: bool, reason: str, now: datetime) -> Condition:
    return Condition(type=type_, status="True" if is_true else "False", reason=reason or None, last_transition_time=now)
