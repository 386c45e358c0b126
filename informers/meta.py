"""The parts that every Kubernetes object has: metadata, owner references, keys and versions.

Values are frozen and have only the fields that the program reads. An optional field has the type `T | None`, because
the API server may send `null` for a string or a map, such as `creationTimestamp: null` in a template. The functions
`labels_of` and `annotations_of` never return None.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

NO_LABELS: Mapping[str, str] = {}


class ObjectKey(NamedTuple):
    """Namespace and name of an object. A work queue holds such keys. `namespace` is "" for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One entry of `metadata.ownerReferences`, with all its fields, so that it can be written back unchanged."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The fields of `metadata` that controllers read. `managedFields`, the largest field, is never decoded."""

    # gc=False: a frozen object that was decoded from JSON cannot be part of a reference cycle. The garbage collector
    # skips it. With 100,000 cached objects, that reduces its pauses from a few hundred milliseconds to a few.

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class KubeObject(Protocol):
    """The type of the objects in a store: a frozen value with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


def labels_of(meta: ObjectMeta) -> Mapping[str, str]:
    """The labels of an object; empty if it has none."""
    return meta.labels or NO_LABELS


def annotations_of(meta: ObjectMeta) -> Mapping[str, str]:
    """The annotations of an object; empty if it has none."""
    return meta.annotations or NO_LABELS


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The owner reference with `controller: true`, or None. The API allows at most one for each object."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return owner
    return None


def version_number(resource_version: str) -> int | None:
    """The number in a resourceVersion, or None if the version is not a number.

    Each write to a resource increases its version, so two versions of one resource can be compared (KEP-5504). A
    version that is not a number cannot be compared.
    """
    return int(resource_version) if resource_version.isascii() and resource_version.isdigit() else None
