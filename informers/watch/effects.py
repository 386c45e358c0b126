"""The effects of the reflector's state machine on the cache. `informers.watch.watch_state` returns them."""

from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from informers.meta import KubeObject, ObjectMeta

T = TypeVar("T", bound=KubeObject)


class Collect(Struct, Generic[T], frozen=True):
    objects: tuple[T, ...]


class Uncollect(Struct, frozen=True):
    meta: ObjectMeta


class Keep(Struct, frozen=True):
    """Add the cached state of an object to the new list, because the server's version cannot be decoded."""

    meta: ObjectMeta


class Commit(Struct, frozen=True):
    """Make the complete list with this version visible, which is older than the cache if `rewound`."""

    version: str
    rewound: bool = False


class Apply(Struct, Generic[T], frozen=True):
    object: T


class Remove(Struct, Generic[T], frozen=True):
    """Remove a deleted object from the cache. `last` is its last state, or None if this could not be decoded."""

    meta: ObjectMeta
    last: T | None = None


class Advance(Struct, frozen=True):
    version: str


class Skip(Struct, frozen=True):
    """Count and log an object that cannot be decoded. The cache gets its metadata if `partial`, or keeps it."""

    why: str
    meta: ObjectMeta | None
    partial: bool = False


class GiveUpStreaming(Struct, frozen=True):
    """Use only paged lists from now on, because the server does not support streaming lists."""


WatchEffect: TypeAlias = Apply[T] | Remove[T] | Advance | Skip
ListEffect: TypeAlias = Collect[T] | Uncollect | Keep | Skip | GiveUpStreaming | Commit
"""Of the effects of a list, only Commit changes what readers see. So readers see only complete lists."""

QuickEffect: TypeAlias = WatchEffect[T] | Collect[T] | Uncollect | Keep | GiveUpStreaming
"""All effects but Commit, which can take long, because it compares the complete new list with the cache."""
