"""What every Kubernetes object carries: metadata, owners, keys and versions.

Values are frozen and name only the fields that somebody reads. Optional wire fields are `T | None`, because the API
server sends `null` where a schema says string or map (`creationTimestamp: null` in a template); the `..._of`
functions give the total view.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

NO_LABELS: Mapping[str, str] = {}


class ObjectKey(NamedTuple):
    """Names one object of a kind: the unit of the work queue. `namespace` is "" for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One entry of `metadata.ownerReferences`, whole: a release writes the others back as they were."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The part of `metadata` that controllers read. `managedFields`, the largest part, is never decoded."""

    # gc=False: what was decoded from JSON and is frozen cannot form a cycle, and a cache of 100,000 objects that the
    # cyclic collector passes over costs it pauses of a few milliseconds instead of a few hundred.

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
    """Whatever a store can hold: a frozen value with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


def labels_of(meta: ObjectMeta) -> Mapping[str, str]:
    """The object's labels; empty when it has none."""
    return meta.labels or NO_LABELS


def annotations_of(meta: ObjectMeta) -> Mapping[str, str]:
    """The object's annotations; empty when it has none."""
    return meta.annotations or NO_LABELS


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """The owner that manages this object: the one reference with `controller: true`, of which the API allows one."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return owner
    return None


def version_number(resource_version: str) -> int | None:
    """The number in a resourceVersion, or None where a server's versions are no numbers.

    Versions of one resource grow with each write to it, so they can be compared (KEP-5504). One that does not parse
    is opaque: nothing may be concluded from it.
    """
    return int(resource_version) if resource_version.isascii() and resource_version.isdigit() else None
