"""Simulated storage: DataVolumes as CDI brings them up, and the PersistentVolumeClaims behind them. Pure.

A DataVolume gets a PVC of its own name, which it controls; one that is there and has no controller is adopted. It has
succeeded when that PVC is bound and its time, `sim.vmherd.dev/ready-after`, has passed; on the way it is Pending or
ImportInProgress, where that lasts long enough to be seen. A PVC is bound at once, and, once it is deleted, stays until
no VMI needs it any more, which is kube-controller-manager's part elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from informers.meta import ObjectMeta, OwnerReference, annotations_of
from informers.resource import Resource
from sandbox.behavior import BRIEF_S, began
from sandbox.ownership import adoption, controlled_by, is_controlled_by, is_free
from sandbox.step import Change, Create, Patch, Step
from sandbox.vmis import FINAL, Condition, SimulatedVMI, phase_of
from sandbox.wishes import Wishes, read_wishes

PROTECTION: Final = "kubernetes.io/pvc-protection"
"""The finalizer that the API server puts on every PVC."""

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
IN_PROGRESS: Final = "ImportInProgress"
PENDING: Final = "Pending"

DEFAULT_SIZE: Final = "1Gi"


class _Requests(Struct, frozen=True):
    storage: str | int | float | None = None


class _Resources(Struct, frozen=True, omit_defaults=True):
    requests: _Requests | None = None


class ClaimSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of a PVC, and, as `pvc` or `storage`, of a DataVolume: the latter may leave out everything but the size."""

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


class _Body(Struct, frozen=True):
    metadata: _Meta
    status: ClaimStatus | DataVolumeStatus | UnsetType = UNSET


_encode: Final = msgspec.json.Encoder().encode


def phase_of_volume(volume: SimulatedDataVolume) -> str:
    return (volume.status.phase or "") if volume.status is not None else ""


def is_bound(claim: SimulatedClaim) -> bool:
    return claim.status is not None and claim.status.phase == "Bound"


def volume_step(volume: SimulatedDataVolume, claim: SimulatedClaim | None, now: datetime, first_seen: datetime) -> Step:
    """What CDI does about this DataVolume next; `claim` is the PVC of its name."""
    meta = volume.metadata
    if meta.deletion_timestamp is not None:
        return Step()
    wishes = read_wishes(annotations_of(meta))
    if claim is None:
        return Step(effects=(Create(CLAIMS, _new_claim(volume)),), flaws=wishes.flaws)
    if is_free(claim.metadata):
        owner = controlled_by(DATA_VOLUMES, meta)
        return Step(effects=(Change(CLAIMS, meta.name, adoption(claim.metadata, owner)),), flaws=wishes.flaws)
    phase = phase_of_volume(volume)
    if phase in (SUCCEEDED, FAILED):
        return Step(flaws=wishes.flaws)
    usable = is_bound(claim) and is_controlled_by(claim.metadata, meta)
    left_s = wishes.ready_after_s - (now - began(meta, first_seen)).total_seconds()
    wanted = _phase(wishes, usable=usable, left_s=left_s)
    # A phase that passes in a moment is not worth a write: waiting for the PVC, too, may be over before its time is.
    worth_it = left_s <= 0 or (usable and wishes.ready_after_s >= BRIEF_S * 2)
    if wanted != phase and worth_it:
        return Step(write=_change_volume(volume, wanted, now), flaws=wishes.flaws)
    return Step(after_s=left_s if left_s > 0 else None, flaws=wishes.flaws)


def claim_step(claim: SimulatedClaim, users: Iterable[SimulatedVMI]) -> Step:
    """What the cluster does about this PVC next; `users` are the VMIs that name it."""
    meta = claim.metadata
    if meta.deletion_timestamp is not None:
        if PROTECTION not in (meta.finalizers or ()) or any(phase_of(vmi) not in FINAL for vmi in users):
            return Step()
        others = tuple(name for name in meta.finalizers or () if name != PROTECTION)
        own = _Meta(uid=meta.uid, resource_version=meta.resource_version, finalizers=others)
        return Step(write=Patch(_encode(_Body(own))))
    wishes = read_wishes(annotations_of(meta))
    if is_bound(claim) or wishes.behavior == "never-ready":
        return Step(flaws=wishes.flaws)
    spec = claim.spec or ClaimSpec()
    requests = spec.resources.requests if spec.resources is not None else None
    bound = ClaimStatus(phase="Bound", access_modes=spec.access_modes, capacity=requests)
    own = _Meta(uid=meta.uid, resource_version=meta.resource_version)
    return Step(write=Patch(_encode(_Body(own, bound)), "status"), flaws=wishes.flaws)


def _phase(wishes: Wishes, *, usable: bool, left_s: float) -> str:
    if not usable:
        return PENDING
    if left_s > 0 or wishes.behavior == "never-ready":
        return IN_PROGRESS
    return FAILED if wishes.behavior == "fail" else SUCCEEDED


def _new_claim(volume: SimulatedDataVolume) -> bytes:
    spec = volume.spec or DataVolumeSpec()
    asked = spec.pvc or spec.storage or ClaimSpec()
    size = asked.resources.requests.storage if asked.resources is not None and asked.resources.requests else None
    meta = _NewMeta(
        name=volume.metadata.name,
        labels=volume.metadata.labels,
        owner_references=(controlled_by(DATA_VOLUMES, volume.metadata),),
    )
    made = ClaimSpec(
        access_modes=asked.access_modes or ("ReadWriteOnce",),
        resources=_Resources(_Requests(size or DEFAULT_SIZE)),
        storage_class_name=asked.storage_class_name,
        volume_mode=asked.volume_mode,
        volume_name=f"pvc-{volume.metadata.uid}",
    )
    return _encode(_New(CLAIMS.api_version, CLAIMS.kind, meta, made))


def _change_volume(volume: SimulatedDataVolume, phase: str, now: datetime) -> Patch:
    meta = volume.metadata
    done = phase == SUCCEEDED
    conditions = (
        _condition("Bound", phase != PENDING, "Pending" if phase == PENDING else "Bound", now),
        _condition("Running", phase == IN_PROGRESS, {SUCCEEDED: "Completed", FAILED: "Error"}.get(phase, ""), now),
        _condition("Ready", done, "" if done else "TransferRunning", now),
    )
    status = DataVolumeStatus(
        phase=phase, claim_name=meta.name, progress="100.0%" if done else "N/A", conditions=conditions
    )
    own = _Meta(uid=meta.uid, resource_version=meta.resource_version)
    return Patch(_encode(_Body(own, status)), "status")


def _condition(type_: str, holds: bool, reason: str, now: datetime) -> Condition:
    return Condition(type=type_, status="True" if holds else "False", reason=reason or None, last_transition_time=now)
