"""This module defines the fields of PersistentVolumeClaims (PVCs) and PersistentVolumes that the simulator reads."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition
from informers.meta import ObjectKey, ObjectMeta, annotations_of
from informers.resource import Resource
from sandbox.vmis import SimulatedVMI

PROTECTION: Final = "kubernetes.io/pvc-protection"
WAITING: Final = ("WaitForFirstConsumer", "PendingPopulation")
"""The phases of a DataVolume that waits for a VMI. CDI uses PendingPopulation for storage with volume populators."""

WAITING_PHASE: Final = "sim.vmherd.dev/waiting-phase"
"""The annotation with the phase in which a DataVolume waits.

Its PVC has the annotation too. The value is one of `WAITING`.
"""

BLOCK: Final = "Block"

DRIVER: Final = "sim.vmherd.dev"
DEFAULT_SIZE: Final = "1Gi"


class Requests(Struct, frozen=True):
    storage: str | int | float | None = None


class Resources(Struct, frozen=True, omit_defaults=True):
    requests: Requests | None = None


class ClaimSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The spec of a PVC, or the field `pvc` or `storage` of a DataVolume's spec.

    In a DataVolume, every field is optional.
    """

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
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None

    @property
    def wanted(self) -> ClaimSpec:
        return self.spec or ClaimSpec()

    @property
    def told(self) -> ClaimStatus:
        return self.status or ClaimStatus()

    @property
    def is_bound(self) -> bool:
        return self.told.phase == "Bound"

    @property
    def volume_key(self) -> ObjectKey:
        """Return the key of the PVC's volume. The key has no name if the PVC does not name a volume yet."""
        return ObjectKey("", self.wanted.volume_name or "")


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
    status: _VolumeStatus | None = None

    @property
    def claim(self) -> ClaimRef:
        return self.spec.claim_ref or ClaimRef()

    @property
    def claim_key(self) -> ObjectKey:
        return ObjectKey(self.claim.namespace, self.claim.name)


CLAIMS: Final = Resource(
    SimulatedClaim, group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim"
)
PERSISTENT_VOLUMES: Final = Resource(
    PersistentVolume, group="", version="v1", plural="persistentvolumes", kind="PersistentVolume", namespaced=False
)


def waiting_phase(meta: ObjectMeta) -> str:
    """Return the phase in which the DataVolume waits for its first consumer, or ""."""
    phase = annotations_of(meta).get(WAITING_PHASE, "")
    return phase if phase in WAITING else ""


def is_used(users: Iterable[SimulatedVMI]) -> bool:
    return any(not vmi.is_final for vmi in users)
