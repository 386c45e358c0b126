"""This module simulates the PersistentVolumes of bound PVCs, as a CSI driver provisions, grows and deletes them.

All functions of this module are pure. A PersistentVolume lives as long as its PVC.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from informers.meta import ObjectKey, ObjectMeta
from informers.resource import Resource
from sandbox.claims import Requests, SimulatedClaim, is_bound, requested_size, spec_of
from sandbox.step import Change, Create, Delete, Patch, Step

DRIVER: Final = "sim.vmherd.dev"
"""The name of the simulated CSI driver."""

DEFAULT_SIZE: Final = "1Gi"
"""The size of a volume without a requested size."""

_encode: Final = msgspec.json.Encoder().encode


class _Driver(Struct, frozen=True):
    driver: str = ""


class ClaimRef(Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Spec(Struct, frozen=True, rename="camel"):
    capacity: Requests | None = None
    claim_ref: ClaimRef | None = None
    csi: _Driver | None = None


class _Status(Struct, frozen=True):
    phase: str | None = None


class PersistentVolume(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status | None = None

    @property
    def claim(self) -> ClaimRef:
        return self.spec.claim_ref or ClaimRef()

    @property
    def claim_key(self) -> ObjectKey:
        return ObjectKey(self.claim.namespace, self.claim.name)


PERSISTENT_VOLUMES: Final = Resource(
    PersistentVolume, group="", version="v1", plural="persistentvolumes", kind="PersistentVolume", namespaced=False
)


def key_of(claim: SimulatedClaim) -> ObjectKey:
    """Return the key of the PVC's volume. The key has no name if the PVC does not name a volume yet."""
    return ObjectKey("", spec_of(claim).volume_name or "")


def create(claim: SimulatedClaim) -> Create:
    spec, meta = spec_of(claim), claim.metadata
    name = spec.volume_name
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace, "name": meta.name}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "accessModes": spec.access_modes,
            "capacity": {"storage": requested_size(spec) or DEFAULT_SIZE},
            "claimRef": {**reference, "uid": meta.uid},
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.storage_class_name,
            "volumeMode": spec.volume_mode,
        },
    }
    return Create(PERSISTENT_VOLUMES, _encode(body))


def grow(volume: PersistentVolume, size: str | int | float) -> Change:
    return Change(
        PERSISTENT_VOLUMES, volume.metadata.name, _patch(volume.metadata, spec={"capacity": {"storage": size}})
    )


def persistent_volume_step(volume: PersistentVolume, claim: SimulatedClaim | None) -> Step:
    """Return the step that binds the volume, or that deletes a volume whose PVC is gone.

    `claim` is the PVC with the name in the volume's `claimRef`, or None. Volumes of other drivers are left alone.
    """
    meta = volume.metadata
    if volume.spec.csi is None or volume.spec.csi.driver != DRIVER:
        return Step()
    if meta.deletion_timestamp is not None:
        return Step(write=_patch(meta, finalizers=[]) if meta.finalizers else None)
    if claim is None or claim.metadata.uid != volume.claim.uid:
        return Step(effects=(Delete(PERSISTENT_VOLUMES, meta.name, meta.uid),))
    if is_bound(claim) and (volume.status is None or volume.status.phase != "Bound"):
        return Step(write=msgspec.structs.replace(_patch(meta, status={"phase": "Bound"}), subresource="status"))
    return Step()


def _patch(meta: ObjectMeta, *, finalizers: list[str] | None = None, **fields: Any) -> Patch:
    own = {"uid": meta.uid} if finalizers is None else {"uid": meta.uid, "finalizers": finalizers}
    return Patch(_encode({"metadata": own, **fields}))
