"""This module defines the fields of a PersistentVolumeClaim (PVC) that the simulator reads, and builds its patches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta, annotations_of
from informers.resource import Resource
from sandbox.conditions import Condition
from sandbox.step import Patch
from sandbox.vmis import FINAL_PHASES, SimulatedVMI, phase_of

PROTECTION: Final = "kubernetes.io/pvc-protection"
"""The name of the finalizer that the API server adds to every PVC."""

WAITING: Final = ("WaitForFirstConsumer", "PendingPopulation")
"""The phases of a DataVolume that waits for a VMI. CDI uses PendingPopulation for storage with volume populators."""

WAITING_PHASE: Final = "sim.vmherd.dev/waiting-phase"
"""The annotation with the phase in which a DataVolume waits.

Its PVC has the annotation too. The value is one of `WAITING`.
"""

BLOCK: Final = "Block"

_encode: Final = msgspec.json.Encoder().encode


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


CLAIMS: Final = Resource(
    SimulatedClaim, group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim"
)


def is_bound(claim: SimulatedClaim) -> bool:
    return claim.status is not None and claim.status.phase == "Bound"


def spec_of(claim: SimulatedClaim) -> ClaimSpec:
    return claim.spec or ClaimSpec()


def requested_size(spec: ClaimSpec) -> str | int | float | None:
    requests = spec.resources.requests if spec.resources is not None else None
    return requests.storage if requests is not None else None


def waiting_phase(meta: ObjectMeta) -> str:
    """Return the phase in which the DataVolume waits for its first consumer, or ""."""
    phase = annotations_of(meta).get(WAITING_PHASE, "")
    return phase if phase in WAITING else ""


def is_awaiting_user(claim: SimulatedClaim, users: Iterable[SimulatedVMI]) -> bool:
    """Return True if the PVC is bound only when a VMI uses it, and no VMI does."""
    return bool(waiting_phase(claim.metadata)) and not _is_used(users)


def released_patch(claim: SimulatedClaim, users: Iterable[SimulatedVMI]) -> Patch | None:
    """Return the patch that removes the protection finalizer of a deleted PVC, or None if a VMI uses the PVC."""
    finalizers = claim.metadata.finalizers or ()
    if PROTECTION not in finalizers or _is_used(users):
        return None
    return claim_patch(claim, {"finalizers": [name for name in finalizers if name != PROTECTION]})


def named_patch(claim: SimulatedClaim) -> Patch:
    """Return the patch with the name of the PVC's volume. The binder writes it before the status."""
    return claim_patch(claim, spec={"volumeName": f"pvc-{claim.metadata.uid}"})


def bound_patch(claim: SimulatedClaim) -> Patch:
    spec = spec_of(claim)
    requests = spec.resources.requests if spec.resources is not None else None
    return claim_patch(claim, status=ClaimStatus(phase="Bound", access_modes=spec.access_modes, capacity=requests))


def claim_patch(
    claim: SimulatedClaim, metadata: Mapping[str, Any] | None = None, *, spec: Any = None, status: Any = None
) -> Patch:
    """Return a merge patch of the PVC. The API server rejects the patch if the PVC has changed in the meantime."""
    meta = claim.metadata
    body: dict[str, Any] = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, **(metadata or {})}}
    if spec is not None:
        body["spec"] = spec
    if status is not None:
        body["status"] = status
    return Patch(_encode(body), "status" if status is not None else "")


def _is_used(users: Iterable[SimulatedVMI]) -> bool:
    return any(phase_of(vmi) not in FINAL_PHASES for vmi in users)
