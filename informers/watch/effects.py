"""The effects of the reflector's state machine on the cache. `informers.watch.watch_state` returns them."""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from informers.meta import KubeObject, ObjectMeta
from informers.watch.partial import Partial

T = TypeVar("T", bound=KubeObject)


class Collect(Struct, Generic[T], frozen=True):
    """Add objects to the list that is being read."""

    objects: tuple[T, ...]


class Uncollect(Struct, frozen=True):
    """Remove an object from the list that is being read."""

    meta: ObjectMeta


class Keep(Struct, frozen=True):
    """Add an object to the new list although the server's version of this object cannot be decoded.

    If `partial` is None, add the cached state of the object. Otherwise add the readable fields, and take the others
    from the cache.
    """

    meta: ObjectMeta
    partial: Partial[Any] | None = None


class Discard(Struct, frozen=True):
    """Discard the list that is being read."""


class Commit(Struct, frozen=True):
    """Make the new list visible to readers. The list is complete, and `version` is its resourceVersion.

    `rewound` is True if the list is older than the cache, because the server was restored from a backup.
    """

    version: str
    rewound: bool = False


class Apply(Struct, Generic[T], frozen=True):
    object: T


class ApplyPartial(Struct, Generic[T], frozen=True):
    """Store those fields of an object that can be decoded. The other fields keep the values of the cached object."""

    partial: Partial[T]


class Remove(Struct, Generic[T], frozen=True):
    object: T


class Drop(Struct, frozen=True):
    """Remove a deleted object from the cache. The last state of the object could not be decoded."""

    meta: ObjectMeta


class Advance(Struct, frozen=True):
    """Record that the cache contains all changes up to the resourceVersion `version`."""

    version: str


class Skip(Struct, frozen=True):
    """Count and log an object that cannot be decoded.

    If `partial` is True, the cache gets the readable fields of the object. Otherwise the cache keeps the last decoded
    state of the object.
    """

    why: str
    meta: ObjectMeta | None
    partial: bool = False


class GiveUpStreaming(Struct, frozen=True):
    """Use only paged lists from now on, because the server does not support streaming lists."""


QuickEffect: TypeAlias = (
    Collect[T]
    | Uncollect
    | Keep
    | Discard
    | Apply[T]
    | ApplyPartial[T]
    | Remove[T]
    | Drop
    | Advance
    | Skip
    | GiveUpStreaming
)
Effect: TypeAlias = QuickEffect[T] | Commit
"""The type of an effect. Only Commit can take long, because it compares the complete new list with the cache."""
