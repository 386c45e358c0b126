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

from informers.meta import KubeObject, ObjectKey, version_number

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
        self.objects[key] = new
        for name, function in self._functions.items():
            buckets = self._indexes[name]
            values = tuple(function(new))
            if old is not None:
                self._take_out(buckets, key, (value for value in function(old) if value not in values))
            for value in values:
                bucket = buckets.setdefault(value, _Bucket())
                bucket.objects[key] = new
                bucket.seen = None

    def drop(self, key: ObjectKey) -> None:
        old = self.objects.pop(key)
        for name, function in self._functions.items():
            self._take_out(self._indexes[name], key, function(old))

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        bucket = self._indexes[index].get(value)
        return bucket.tuple() if bucket is not None else ()

    @staticmethod
    def _take_out(buckets: dict[str, _Bucket[T]], key: ObjectKey, values: Iterable[str]) -> None:
        for value in values:
            bucket = buckets[value]
            bucket.objects.pop(key, None)
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
        self.shard.put(key, known if known is not None and _same(known, obj) else obj)

    def drop(self, obj: T) -> None:
        if obj.metadata.key in self.shard.objects:
            self.shard.drop(obj.metadata.key)

    def changes(self) -> Iterator[Change[T]]:
        """What the replacement changed, object by object: removals first, so that nothing seems to exist twice."""
        for key, old in self.held.objects.items():
            if key not in self.shard.objects:
                yield Removed(old)
        for key, new in self.shard.objects.items():
            known = self.held.objects.get(key)
            if known is not new:
                yield from _difference(known, new)


class Store(Generic[T]):
    """See the module's contract. `scopes` are the namespaces that are watched, or `("",)` for all of them."""

    def __init__(self, *, indexes: Indexes[T] | None = None, scopes: Iterable[str] = (ALL_NAMESPACES,)) -> None:
        self._indexes: Indexes[T] = indexes or {}
        self._shards: dict[str, Shard[T]] = {scope: Shard(self._indexes) for scope in scopes}
        self._versions: dict[str, str] = dict.fromkeys(self._shards, "")

    def __len__(self) -> int:
        return sum(len(shard.objects) for shard in self._shards.values())

    def get(self, key: ObjectKey) -> T | None:
        shard = self._shards.get(ALL_NAMESPACES) or self._shards.get(key.namespace)
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
        if held is not None and not _is_newer(obj, held):
            return ()
        shard.put(key, obj)
        self.advance(obj.metadata.resource_version, scope=scope)
        return tuple(_difference(held, obj))

    def remove(self, obj: T, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        """Take in one deletion. `obj` is the object's last state, as a DELETED event carries it."""
        shard = self._shards[scope]
        key = obj.metadata.key
        held = shard.objects.get(key)
        self.advance(obj.metadata.resource_version, scope=scope)
        if held is None or _is_newer(held, obj):
            return ()
        shard.drop(key)
        return (Removed(obj if obj.metadata.uid == held.metadata.uid else held),)

    def begin_replace(self, *, scope: str = ALL_NAMESPACES) -> Replacement[T]:
        return Replacement(self._shards[scope], Shard(self._indexes))

    def commit(self, replacement: Replacement[T], version: str, *, scope: str = ALL_NAMESPACES) -> None:
        """Make the replacement what readers see. Nothing may have been applied since it was begun."""
        self._shards[scope] = replacement.shard
        self._versions[scope] = version

    def replace(self, objects: Iterable[T], version: str, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        """The whole of it in one go, for lists that are short."""
        replacement = self.begin_replace(scope=scope)
        for obj in objects:
            replacement.put(obj)
        self.commit(replacement, version, scope=scope)
        return tuple(replacement.changes())

    def advance(self, version: str, *, scope: str = ALL_NAMESPACES) -> None:
        """Note a version that was seen, in an event or a bookmark. It never goes back."""
        new, held = version_number(version), version_number(self._versions[scope])
        if new is None or held is None or new > held:
            self._versions[scope] = version


def _difference(old: T | None, new: T) -> Iterator[Change[T]]:
    if old is None:
        yield Added(new)
    elif old.metadata.uid != new.metadata.uid:
        yield Removed(old)
        yield Added(new)
    else:
        yield Updated(old, new)


def _same(one: KubeObject, other: KubeObject) -> bool:
    return one.metadata.resource_version == other.metadata.resource_version and one.metadata.uid == other.metadata.uid


def _is_newer(new: KubeObject, held: KubeObject) -> bool:
    """Whether `new` was written later. Versions that are no numbers cannot be compared: the later to arrive wins."""
    one, other = version_number(new.metadata.resource_version), version_number(held.metadata.resource_version)
    if one is None or other is None:
        return new.metadata.resource_version != held.metadata.resource_version
    return one > other
