"""The cache: objects by key, with indexes that are kept up to date as objects change.

One writer, any number of readers. The writer is the informer; everybody else has a `StoreView`, which cannot change
anything. What is in it is immutable, so a reader may keep what it got. Every write is atomic for readers: nobody ever
sees half a list, or an object that one index has and another has not.

A write returns the `Change`s that it made, which is all there is to tell anybody:

- an object that is not newer than the one held changes nothing;
- a name that is used again by another object (another UID) is `Removed`, then `Added`: never an update;
- `Removed.last_known` may be older than the object's last state, where the deletion itself was missed.

Changes of one object come in the order of its versions; between objects no order is promised.
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
    """What readers see of a store."""

    def get(self, key: ObjectKey) -> T_co | None: ...

    def by_index(self, index: str, value: str) -> tuple[T_co, ...]:
        """The objects for which the index function gave this value. KeyError for an index that does not exist."""

    def values(self) -> tuple[T_co, ...]: ...

    def __len__(self) -> int: ...

    def version(self, namespace: str = ALL_NAMESPACES) -> str:
        """The last resourceVersion seen for what covers this namespace, bookmarks included; "" before the first."""


class _Bucket(Generic[T]):
    """The objects of one index value. The tuple that readers get is made once, until something changes."""

    __slots__ = ("objects", "seen")

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, T] = {}
        self.seen: tuple[T, ...] | None = None

    def tuple(self) -> tuple[T, ...]:
        if self.seen is None:
            self.seen = tuple(self.objects.values())
        return self.seen


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
                _take_out(buckets, key, [value for value in function(old) if value not in values])
            for value in values:
                bucket = buckets.get(value)
                if bucket is None:
                    bucket = buckets[value] = _Bucket()
                bucket.objects[key] = new
                bucket.seen = None
        self.objects[key] = new

    def drop(self, key: ObjectKey) -> None:
        old = self.objects.pop(key)
        for name, function in self._functions.items():
            _take_out(self._indexes[name], key, function(old))

    def forget_indexes(self) -> None:
        """Let go of what only readers need, once there are none."""
        self._indexes.clear()

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        bucket = self._indexes[index].get(value)
        return bucket.tuple() if bucket is not None else ()


def _take_out(buckets: dict[str, _Bucket[T]], key: ObjectKey, values: Iterable[str]) -> None:
    for value in values:
        bucket = buckets.get(value)
        if bucket is not None and bucket.objects.pop(key, None) is not None:
            bucket.seen = None
            if not bucket.objects:
                del buckets[value]


class Replacement(Generic[T]):
    """A list on its way in: collected beside the shard that readers see, which it replaces in one step.

    An object that the store holds in the same version already is taken from there, so a relist costs the memory of its
    index and not of its objects.
    """

    def __init__(self, held: Shard[T], shard: Shard[T]) -> None:
        self.held = held
        self.shard = shard

    def put(self, obj: T) -> None:
        key = obj.metadata.key
        known = self.held.objects.get(key)
        self.shard.put(key, obj if known is None or _is_newer(obj.metadata, known.metadata) else known)

    def drop(self, key: ObjectKey) -> None:
        if key in self.shard.objects:
            self.shard.drop(key)

    def keep(self, meta: ObjectMeta) -> None:
        """Take over the state that the store holds: the list has this object, in a version that cannot be decoded."""
        known = self.held.objects.get(meta.key)
        if known is not None and known.metadata.uid == meta.uid and meta.key not in self.shard.objects:
            self.shard.put(meta.key, known)

    def changes(self, *, at_once: int) -> Iterator[list[Change[T]]]:
        """What the replacement changed, after each `at_once` objects that were compared: maybe nothing.

        Removals come first, so that nothing seems to exist twice. To be called once, after the commit: the old list is
        given back bit by bit, because to free 100,000 objects in one go keeps the loop busy for too long.
        """
        held, shown = self.held.objects, self.shard.objects
        self.held.forget_indexes()
        for keys in _chunks(list(held), at_once):
            yield [Removed(held.pop(key)) for key in keys if key not in shown]
        for keys in _chunks(list(shown), at_once):
            found: list[Change[T]] = []
            for key in keys:
                known, new = held.pop(key, None), shown[key]
                if known is not new:
                    found += _difference(known, new)
            yield found


class Store(Generic[T]):
    """See the module's contract. `scopes` are the namespaces that are watched, or `("",)` for all of them.

    `indexes` are plain functions, total for whatever decodes: they run inside every write.
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
        """Take in one object that was added or changed."""
        shard = self._shards[scope]
        key = obj.metadata.key
        held = shard.objects.get(key)
        if held is not None and not _is_newer(obj.metadata, held.metadata):
            return ()
        shard.put(key, obj)
        self.advance(obj.metadata.resource_version, scope=scope)
        return tuple(_difference(held, obj))

    def remove(self, obj: T, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        """Take in one deletion. `obj` is the object's last state, as a DELETED event carries it."""
        held = self._drop(obj.metadata, scope)
        if held is None:
            return ()
        return (Removed(obj if obj.metadata.uid == held.metadata.uid else held),)

    def drop(self, meta: ObjectMeta, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        """Take in the deletion of an object whose last state nobody can read."""
        held = self._drop(meta, scope)
        return () if held is None else (Removed(held),)

    def begin_replace(self, *, scope: str = ALL_NAMESPACES) -> Replacement[T]:
        return Replacement(self._shards[scope], Shard(self._indexes))

    def commit(self, replacement: Replacement[T], version: str, *, scope: str = ALL_NAMESPACES) -> None:
        """Make the replacement what readers see. Nothing may have been applied since it was begun."""
        self._shards[scope] = replacement.shard
        self._versions[scope] = version

    def advance(self, version: str, *, scope: str = ALL_NAMESPACES) -> None:
        """Note a version that was seen, in an event or a bookmark. It never goes back."""
        new, held = version_number(version), version_number(self._versions[scope])
        if new is None or held is None or new > held:
            self._versions[scope] = version

    def _drop(self, meta: ObjectMeta, scope: str) -> T | None:
        """What was held and is not any more."""
        shard = self._shards[scope]
        held = shard.objects.get(meta.key)
        self.advance(meta.resource_version, scope=scope)
        if held is None or _is_newer(held.metadata, meta):
            return None
        shard.drop(meta.key)
        return held


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


def _is_newer(new: ObjectMeta, held: ObjectMeta) -> bool:
    """Whether `new` was written later. Versions that are no numbers cannot be compared: the later to arrive wins."""
    one, other = version_number(new.resource_version), version_number(held.resource_version)
    if one is None or other is None:
        return new.resource_version != held.resource_version
    return one > other
