"""The parts that every Kubernetes object has: metadata, owner references, keys and versions.

The types have only the fields that the program reads. An optional field is `T | None`, because the API server may send
`null`, as in the `creationTimestamp` of a template. `labels_of` and `annotations_of` never return None.
"""

from collections.abc import Hashable, Mapping
from copy import copy
from datetime import datetime
from functools import cache
from sys import intern
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

# Equal values of different objects become one Python object, so a cache with many similar objects needs less memory.
# For a text that many objects contain, `sys.intern` does this. No reader changes these values.

MOST_VALUES: Final = 1024
"""The most remembered values. Then all are forgotten: similar objects are neighbours in lists and events."""

MOST_ITEMS: Final = 16
"""Values with more items are not remembered, so that the remembered values need little memory."""

_values: dict[Hashable, Any] = {}


def shared(items: tuple[H, ...]) -> tuple[H, ...]:
    """Return an earlier tuple that is equal to this tuple, if it is still remembered."""
    return items if len(items) > MOST_ITEMS else _remembered(items, items)


def shared_map(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return an earlier mapping with the same items in the same order, if it is still remembered."""
    if len(texts) > MOST_ITEMS:
        return texts
    key = tuple(texts.items())
    known: Mapping[str, str] | None = _values.get(key)
    if known is not None:
        return known
    return _remembered(key, {name: intern(value) for name, value in key})


def _remembered(key: Hashable, value: T) -> T:
    known: T | None = _values.get(key)
    if known is not None:
        return known
    if len(_values) >= MOST_VALUES:
        _values.clear()
    _values[key] = value
    return value


NO_LABELS: Mapping[str, str] = {}


class ObjectKey(NamedTuple):
    """The namespace and the name of an object. `namespace` is "" for a cluster-scoped object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """The type has all fields of an entry, so that the program can write an entry back unchanged."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "api_version", intern(self.api_version))
        force_setattr(self, "kind", intern(self.kind))


class ObjectMeta(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The fields of `metadata` that controllers read. `managedFields`, the largest field, is never decoded."""

    # A frozen object that was decoded from JSON cannot be part of a reference cycle. So gc=False tells the garbage
    # collector to skip these objects. With 100,000 cached objects, the pauses of the garbage collector become shorter:
    # a few milliseconds instead of a few hundred.

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

    def __post_init__(self) -> None:
        # The objects of one owner have equal labels, owner references and finalizers.
        force_setattr(self, "namespace", intern(self.namespace))
        if self.labels:
            force_setattr(self, "labels", shared_map(self.labels))
        if self.owner_references:
            force_setattr(self, "owner_references", shared(self.owner_references))
        if self.finalizers:
            force_setattr(self, "finalizers", shared(self.finalizers))

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class KubeObject(Protocol):
    """An immutable object with metadata. A store contains objects of this type."""

    @property
    def metadata(self) -> ObjectMeta: ...


def labels_of(meta: ObjectMeta) -> Mapping[str, str]:
    return meta.labels or NO_LABELS


def annotations_of(meta: ObjectMeta) -> Mapping[str, str]:
    return meta.annotations or NO_LABELS


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    """Return the owner reference with `controller: true`, or None. The API allows at most one."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return owner
    return None


def is_controlled_by(meta: ObjectMeta, uid: str) -> bool:
    owner = controller_of(meta)
    return owner is not None and owner.uid == uid


def differs_only_in_version(one: KubeObject, other: KubeObject) -> bool:
    """Return True if both objects have the same type, and are equal except for their resourceVersions."""
    if type(one) is not type(other):
        return False
    meta = copy(one.metadata)
    force_setattr(meta, "resource_version", other.metadata.resource_version)
    return meta == other.metadata and all(
        [getattr(one, field) == getattr(other, field) for field in _fields_beside_metadata(type(one))]
    )


@cache
def _fields_beside_metadata(type_: type[Any]) -> tuple[str, ...]:
    return tuple(name for name in type_.__struct_fields__ if name != "metadata")


LONGEST_NUMBER = 100


def version_number(resource_version: str) -> int | None:
    """Return the resourceVersion as a number, which each write to the resource increases (KEP-5504), or None."""
    is_number = resource_version.isascii() and resource_version.isdigit() and len(resource_version) < LONGEST_NUMBER
    return int(resource_version) if is_number else None


def is_older(version: str, other: str) -> bool:
    number, other_number = version_number(version), version_number(other)
    return number is not None and other_number is not None and number < other_number
