"""The cache: the objects of one resource by key, with indexes.

There is one writer, the informer, and any number of readers. A reader has a `StoreView`, which has no methods that
write. Objects are immutable, so a reader may keep an object. Every write is atomic for readers: a reader never sees a
part of a list, or an object that is in one index and missing in another.

A write returns its `Change`s:

- An object that is not newer than the cached object changes nothing.
- If the name now belongs to another object, with another UID, the changes are `Removed` and then `Added`, never
  `Updated`.
- `Removed.last_known` may be older than the last state of the object if the deletion event was missed.

Changes of one object come in the order of its versions. There is no promised order between two objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from informers.meta import KubeObject, ObjectKey, ObjectMeta, version_number

T = TypeVar("T", bound=KubeObject)
T_co = TypeVar("T_co", bound=KubeObject, covariant=True)

ALL_NAMESPACES = ""


class Added(Struct, Generic[T], frozen=True):
    new: T


class Updated(Struct, Generic[T], frozen=True):
    old: T
    new: T


class Removed(Struct, Generic[T], frozen=True):
    last_known: T


Change: TypeAlias = Added[T] | Updated[T] | Removed[T]
Indexes: TypeAlias = Mapping[str, Callable[[T], Iterable[str]]]


class StoreView(Protocol[T_co]):
    """The read methods of a store."""

    def get(self, key: ObjectKey) -> T_co | None: ...

    def by_index(self, index: str, value: str) -> tuple[T_co, ...]:
        """The objects for which the index function returns this value. Raises KeyError for an unknown index."""

    def values(self) -> tuple[T_co, ...]: ...

    def __len__(self) -> int: ...

    def version(self, namespace: str = ALL_NAMESPACES) -> str:
        """The last resourceVersion of the watch that covers this namespace, bookmarks included; "" before a list."""


class _Bucket(Generic[T]):
    """The objects of one index value. The tuple for readers is cached until an object changes."""

    __slots__ = ("cached_tuple", "objects")

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, T] = {}
        self.cached_tuple: tuple[T, ...] | None = None

    def tuple(self) -> tuple[T, ...]:
        if self.cached_tuple is None:
            self.cached_tuple = tuple(self.objects.values())
        return self.cached_tuple


class Shard(Generic[T]):
    """The objects of one scope: all namespaces, or one."""

    def __init__(self, indexes: Indexes[T]) -> None:
        self.objects: dict[ObjectKey, T] = {}
        self._functions = indexes
        self._indexes: dict[str, dict[str, _Bucket[T]]] = {name: {} for name in indexes}

    def put(self, key: ObjectKey, new: T) -> None:
        old = self.objects.get(key)
        for name, function in self._functions.items():
            buckets = self._indexes[name]
            values = tuple(function(new))
            if old is not None:
                _remove_from_buckets(buckets, key, [value for value in function(old) if value not in values])
            for value in values:
                bucket = buckets.get(value)
                if bucket is None:
                    bucket = buckets[value] = _Bucket()
                bucket.objects[key] = new
                bucket.cached_tuple = None
        self.objects[key] = new

    def drop(self, key: ObjectKey) -> None:
        old = self.objects.pop(key)
        for name, function in self._functions.items():
            _remove_from_buckets(self._indexes[name], key, function(old))

    def forget_indexes(self) -> None:
        """Free the indexes of a shard that has no readers any more."""
        self._indexes.clear()

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        bucket = self._indexes[index].get(value)
        return bucket.tuple() if bucket is not None else ()


def _remove_from_buckets(buckets: dict[str, _Bucket[T]], key: ObjectKey, values: Iterable[str]) -> None:
    for value in values:
        bucket = buckets.get(value)
        if bucket is not None and bucket.objects.pop(key, None) is not None:
            bucket.cached_tuple = None
            if not bucket.objects:
                del buckets[value]


class Replacement(Generic[T]):
    """A new list while it is being read. `Store.commit` replaces the shard that readers see in one step.

    If the cache has an object in the same version, the replacement uses the cached object. So a relist needs memory for
    the new indexes only.
    """

    def __init__(self, old: Shard[T], shard: Shard[T]) -> None:
        self.old = old
        self.shard = shard

    def put(self, obj: T) -> None:
        key = obj.metadata.key
        cached = self.old.objects.get(key)
        self.shard.put(key, obj if cached is None or _is_newer(obj.metadata, cached.metadata) else cached)

    def drop(self, key: ObjectKey) -> None:
        if key in self.shard.objects:
            self.shard.drop(key)

    def keep(self, meta: ObjectMeta) -> None:
        """Keep the cached state of an object. Used if the list has the object in a version that cannot be decoded."""
        cached = self.old.objects.get(meta.key)
        if cached is not None and cached.metadata.uid == meta.uid and meta.key not in self.shard.objects:
            self.shard.put(meta.key, cached)

    def changes(self, *, at_once: int) -> Iterator[list[Change[T]]]:
        """Compare the new list with the old one. Yield the changes of each slice of `at_once` objects, maybe none.

        Removals come first, so that no object seems to exist twice. Call this once, after the commit. The old objects
        are freed in slices as well, because freeing 100,000 objects at once blocks the event loop for too long.
        """
        old_objects, new_objects = self.old.objects, self.shard.objects
        self.old.forget_indexes()
        for keys in _chunks(list(old_objects), at_once):
            yield [Removed(old_objects.pop(key)) for key in keys if key not in new_objects]
        for keys in _chunks(list(new_objects), at_once):
            found: list[Change[T]] = []
            for key in keys:
                old, new = old_objects.pop(key, None), new_objects[key]
                if old is not new:
                    found += _difference(old, new)
            yield found


class Store(Generic[T]):
    """The cached objects of one resource; the docstring of this module is its contract.

    `scopes` are the watched namespaces, or `("",)` for all namespaces. `indexes` are functions that run inside every
    write. They must not raise for any object that can be decoded.
    """

    def __init__(self, *, indexes: Indexes[T] | None = None, scopes: Iterable[str] = (ALL_NAMESPACES,)) -> None:
        self._indexes: Indexes[T] = indexes or {}
        self._shards: dict[str, Shard[T]] = {scope: Shard(self._indexes) for scope in scopes}
        self._versions: dict[str, str] = dict.fromkeys(self._shards, "")

    def __len__(self) -> int:
        return sum(len(shard.objects) for shard in self._shards.values())

    def get(self, key: ObjectKey) -> T | None:
        shard = self._shards.get(ALL_NAMESPACES, self._shards.get(key.namespace))
        return shard.objects.get(key) if shard is not None else None

    def values(self) -> tuple[T, ...]:
        return tuple(obj for shard in self._shards.values() for obj in shard.objects.values())

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        if len(self._shards) == 1:
            (shard,) = self._shards.values()
            return shard.by_index(index, value)
        return tuple(obj for shard in self._shards.values() for obj in shard.by_index(index, value))

    def version(self, namespace: str = ALL_NAMESPACES) -> str:
        return self._versions.get(ALL_NAMESPACES) or self._versions.get(namespace, "")

    def apply(self, obj: T, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        """Store an object that was added or changed."""
        shard = self._shards[scope]
        key = obj.metadata.key
        cached = shard.objects.get(key)
        if cached is not None and not _is_newer(obj.metadata, cached.metadata):
            return ()
        shard.put(key, obj)
        self.advance(obj.metadata.resource_version, scope=scope)
        return tuple(_difference(cached, obj))

    def remove(self, obj: T, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        """Remove a deleted object. `obj` is its last state, from the DELETED event."""
        removed = self._drop(obj.metadata, scope)
        if removed is None:
            return ()
        return (Removed(obj if obj.metadata.uid == removed.metadata.uid else removed),)

    def drop(self, meta: ObjectMeta, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        """Remove a deleted object whose last state cannot be decoded."""
        removed = self._drop(meta, scope)
        return () if removed is None else (Removed(removed),)

    def begin_replace(self, *, scope: str = ALL_NAMESPACES) -> Replacement[T]:
        return Replacement(self._shards[scope], Shard(self._indexes))

    def commit(self, replacement: Replacement[T], version: str, *, scope: str = ALL_NAMESPACES) -> None:
        """Show the new list to readers. No other write may have happened since `begin_replace`."""
        self._shards[scope] = replacement.shard
        self._versions[scope] = version

    def advance(self, version: str, *, scope: str = ALL_NAMESPACES) -> None:
        """Record the resourceVersion of an event or a bookmark. An older version is ignored."""
        new, last = version_number(version), version_number(self._versions[scope])
        if new is None or last is None or new > last:
            self._versions[scope] = version

    def _drop(self, meta: ObjectMeta, scope: str) -> T | None:
        """Remove an object and return its cached state. Return None if it is not cached or if its cache is newer."""
        shard = self._shards[scope]
        cached = shard.objects.get(meta.key)
        self.advance(meta.resource_version, scope=scope)
        if cached is None or _is_newer(cached.metadata, meta):
            return None
        shard.drop(meta.key)
        return cached


def _chunks(keys: list[ObjectKey], size: int) -> Iterator[list[ObjectKey]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


def _difference(old: T | None, new: T) -> Iterator[Change[T]]:
    if old is None:
        yield Added(new)
    elif old.metadata.uid != new.metadata.uid:
        yield Removed(old)
        yield Added(new)
    else:
        yield Updated(old, new)


def _is_newer(new: ObjectMeta, cached: ObjectMeta) -> bool:
    """True if `new` was written after `cached`.

    Versions that are not numbers cannot be compared. Then `new` counts as newer if the two versions differ.
    """
    one, other = version_number(new.resource_version), version_number(cached.resource_version)
    if one is None or other is None:
        return new.resource_version != cached.resource_version
    return one > other
