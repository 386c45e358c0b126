"""PersistentVolumeClaims (PVCs) and PersistentVolumes, as docs/sandbox.md describes them. This module is pure."""

from collections.abc import Collection, Iterable
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition, find_condition
from controller.apimachinery.quantities import parse_quantity
from informers.meta import ObjectKey, ObjectMeta, annotations_of
from informers.resource import PartialObject, Resource
from sandbox.settings import SimulationSettings, read_settings
from sandbox.step import Change, Conditions, Create, Delete, Patch, Step, creation, patch_of, updated, without
from sandbox.vmis import SimulatedVMI

PROTECTION: Final = "kubernetes.io/pvc-protection"
WAITING: Final = ("WaitForFirstConsumer", "PendingPopulation")
"""The phases of a DataVolume that waits for a VMI. CDI uses PendingPopulation for storage with volume populators."""

WAITING_PHASE: Final = "sim.vmherd.dev/waiting-phase"
"""The annotation of a DataVolume and its PVC with the phase in which the DataVolume waits, one of `WAITING`."""

BLOCK: Final = "Block"

DRIVER: Final = "sim.vmherd.dev"
DEFAULT_SIZE: Final = "1Gi"


class Requests(Struct, frozen=True):
    storage: str | int | float | None = None


class Resources(Struct, frozen=True, omit_defaults=True):
    requests: Requests | None = None


class ClaimSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The spec of a PVC, or the field `pvc` or `storage` of a DataVolume's spec, where every field is optional."""

    access_modes: tuple[str, ...] | None = None
    resources: Resources | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str | None = None

    @property
    def requests(self) -> Requests | None:
        return self.resources.requests if self.resources is not None else None

    @property
    def size(self) -> str | int | float | None:
        return self.requests.storage if self.requests is not None else None


class ClaimStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    phase: str | None = None
    access_modes: tuple[str, ...] | None = None
    capacity: Requests | None = None
    allocated_resources: Requests | None = None
    conditions: tuple[Condition, ...] | None = None


class SimulatedClaim(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def is_bound(self) -> bool:
        return self.status.phase == "Bound"

    @property
    def volume_key(self) -> ObjectKey:
        return ObjectKey("", self.spec.volume_name or "")


class _Driver(Struct, frozen=True):
    driver: str = ""


class ClaimRef(Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _VolumeSpec(Struct, frozen=True, rename="camel"):
    capacity: Requests | None = None
    claim_ref: ClaimRef | None = None
    csi: _Driver | None = None


class _VolumeStatus(Struct, frozen=True):
    phase: str | None = None


class PersistentVolume(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _VolumeSpec = _VolumeSpec()
    status: _VolumeStatus = _VolumeStatus()

    @property
    def claim(self) -> ClaimRef:
        return self.spec.claim_ref or ClaimRef()

    @property
    def claim_key(self) -> ObjectKey:
        return ObjectKey(self.claim.namespace, self.claim.name)


STORAGE_CLASSES: Final = Resource(
    PartialObject, group="storage.k8s.io", version="v1", plural="storageclasses", kind="StorageClass", namespaced=False
)
CLAIMS: Final = Resource(
    SimulatedClaim, group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim"
)
PERSISTENT_VOLUMES: Final = Resource(
    PersistentVolume, group="", version="v1", plural="persistentvolumes", kind="PersistentVolume", namespaced=False
)


def waiting_phase(meta: ObjectMeta) -> str:
    phase = annotations_of(meta).get(WAITING_PHASE, "")
    return phase if phase in WAITING else ""


def is_used(users: Iterable[SimulatedVMI]) -> bool:
    return any(not vmi.is_final for vmi in users)


RESIZING: Final = "Resizing"
FILE_SYSTEM_PENDING: Final = "FileSystemResizePending"
FAILED: Final = "ControllerResizeError"
_CONDITIONS: Final = (RESIZING, FILE_SYSTEM_PENDING, FAILED)

_PENDING_MESSAGE: Final = "Waiting for user to (re-)start a pod to finish file system resize of volume on node."
_FAILED_MESSAGE: Final = (
    "failed to expand pvc with rpc error: code = OutOfRange desc = the requested size exceeds the limit of the storage"
)


def claim_step(
    claim: SimulatedClaim,
    volume: PersistentVolume | None,
    users: Collection[SimulatedVMI],
    now: datetime,
    *,
    has_class: bool = True,
) -> Step:
    """Return the step that binds or grows the PVC, or removes the finalizer if it is deleted and has no `users`.

    `has_class` is true if the StorageClass of the PVC exists. Otherwise nothing makes a volume for it.
    """
    meta, spec = claim.metadata, claim.spec
    if meta.deletion_timestamp is not None:
        finalizers = meta.finalizers or ()
        if PROTECTION not in finalizers or is_used(users):
            return Step()
        left = [name for name in finalizers if name != PROTECTION]
        return Step(write=patch_of(meta, versioned=True, metadata={"finalizers": left}))
    settings = read_settings(annotations_of(meta))
    if claim.is_bound:
        return _growth(claim, volume, users, settings, now)
    is_waiting = waiting_phase(meta) and not is_used(users)
    if is_waiting or not has_class or settings.behavior == "never-ready":
        return Step()
    if not spec.volume_name:
        # The binder writes the name of the volume before the status.
        return Step(write=patch_of(meta, versioned=True, spec={"volumeName": f"pvc-{meta.uid}"}))
    if volume is not None and volume.claim.uid != meta.uid:
        return Step()  # the volume of a deleted PVC with this name goes first
    status = ClaimStatus(phase="Bound", access_modes=spec.access_modes, capacity=spec.requests)
    return Step(effects=() if volume is not None else (_new_volume(claim),), write=_status_patch(claim, status))


def persistent_volume_step(volume: PersistentVolume, claim: SimulatedClaim | None) -> Step:
    """Return the step that binds a volume of this driver, or deletes it if its `claim` is gone."""
    meta = volume.metadata
    if volume.spec.csi is None or volume.spec.csi.driver != DRIVER:
        return Step()
    if meta.deletion_timestamp is not None:
        return Step(write=patch_of(meta, metadata={"finalizers": []}) if meta.finalizers else None)
    if claim is None or claim.metadata.uid != volume.claim.uid:
        return Step(effects=(Delete(PERSISTENT_VOLUMES, meta.name, meta.uid),))
    if claim.is_bound and volume.status.phase != "Bound":
        return Step(write=patch_of(meta, "status", status={"phase": "Bound"}))
    return Step()


def _new_volume(claim: SimulatedClaim) -> Create:
    spec, meta = claim.spec, claim.metadata
    claim_of_volume = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace}
    return creation(
        PERSISTENT_VOLUMES,
        {"name": spec.volume_name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        spec={
            "accessModes": spec.access_modes,
            "capacity": {"storage": spec.size or DEFAULT_SIZE},
            "claimRef": {**claim_of_volume, "name": meta.name, "uid": meta.uid},
            "csi": {"driver": DRIVER, "volumeHandle": spec.volume_name},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.storage_class_name,
            "volumeMode": spec.volume_mode,
        },
    )


def _growth(
    claim: SimulatedClaim,
    volume: PersistentVolume | None,
    users: Collection[SimulatedVMI],
    settings: SimulationSettings,
    now: datetime,
) -> Step:
    size = claim.spec.size
    wanted, present = _parsed(size), _size(claim.status.capacity)
    if wanted is None or present is None or wanted <= present:
        return Step()
    conditions = claim.status.conditions or ()
    began = find_condition(conditions, RESIZING)
    if began is None or _size(claim.status.allocated_resources) != wanted:
        status = _status((*without(conditions, *_CONDITIONS), _condition(RESIZING, now)), "ControllerResizeInProgress")
        return Step(write=_status_patch(claim, status | {"allocatedResources": {"storage": size}}))
    if settings.resize == "hang":
        return Step()
    left_s = settings.resize_after_s - (now - (began.last_transition_time or now)).total_seconds()
    if left_s > 0:
        return Step(after_s=left_s)
    if settings.resize == "fail":
        failed = updated(conditions, _condition(FAILED, now, _FAILED_MESSAGE))
        write = _status_patch(claim, _status(failed, "ControllerResizeInfeasible")) if failed != conditions else None
        return Step(write=write)
    grown: tuple[Change, ...] = ()
    if volume is not None and _size(volume.spec.capacity) != wanted:
        patch = patch_of(volume.metadata, spec={"capacity": {"storage": size}})
        grown = (Change(PERSISTENT_VOLUMES, volume.metadata.name, patch),)
    if claim.spec.volume_mode != BLOCK and not any(vmi.phase == "Running" for vmi in users):
        pending = updated(without(conditions, FAILED), _condition(FILE_SYSTEM_PENDING, now, _PENDING_MESSAGE))
        write = _status_patch(claim, _status(pending, "NodeResizePending")) if pending != conditions else None
        return Step(effects=grown, write=write)
    finished = _status(without(conditions, *_CONDITIONS), None) | {"capacity": {"storage": size}}
    return Step(effects=grown, write=_status_patch(claim, finished))


def _status_patch(claim: SimulatedClaim, status: ClaimStatus | dict[str, Any]) -> Patch:
    return patch_of(claim.metadata, "status", versioned=True, status=status)


def _status(conditions: Conditions, state: str | None) -> dict[str, Any]:
    return {"conditions": conditions, "allocatedResourceStatuses": {"storage": state} if state else None}


def _condition(type_: str, now: datetime, message: str | None = None) -> Condition:
    return Condition(type=type_, status="True", message=message, last_transition_time=now)


def _size(requests: Requests | None) -> Fraction | None:
    return _parsed(requests.storage) if requests is not None else None


def _parsed(size: str | int | float | None) -> Fraction | None:
    return parse_quantity(size) if size is not None else None
