"""A store is the cache for the objects of one resource. Readers find an object by its key or by an index.

Only the informer writes to a store. Readers use a `StoreView`. Objects are immutable, so a reader may keep an object
for any time. Every write is atomic for readers: no reader sees a part of a new list, and the indexes never contradict
each other. The section "Store" of docs/informers.md lists what its writes promise.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from informers.meta import KubeObject, ObjectKey, ObjectMeta, differs_only_in_version, is_older, version_number

T = TypeVar("T", bound=KubeObject)
T_co = TypeVar("T_co", bound=KubeObject, covariant=True)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)

ALL_NAMESPACES = ""


class Added(Struct, Generic[T], frozen=True):
    new: T


class Updated(Struct, Generic[T], frozen=True):
    """An object has changed. If `only_version` is True, no field that its type shows has changed, as usually."""

    old: T
    new: T
    only_version: bool = False


class Removed(Struct, Generic[T], frozen=True):
    last_known: T


Change: TypeAlias = Added[T] | Updated[T] | Removed[T]
Indexes: TypeAlias = Mapping[str, Callable[[T], Iterable[str]]]


class StoreView(Protocol[T_co]):
    def get(self, key: ObjectKey) -> T_co | None: ...

    def keys(self, namespace: str) -> Collection[ObjectKey]:
        """Return the keys of at least this namespace. The next list replaces the collection."""

    def by_index(self, index: str, value: str) -> tuple[T_co, ...]:
        """Raise KeyError if the store has no index with this name."""

    def values(self) -> tuple[T_co, ...]: ...

    def __len__(self) -> int: ...

    def version(self, namespace: str = ALL_NAMESPACES) -> str:
        """Return the last resourceVersion of this namespace's watch, or "" before the first list is complete."""

    @property
    def rewinds(self) -> int:
        """How many times the server was restored from a backup, which makes all earlier resourceVersions invalid."""

    def follow(self, follower: "Follower[Any]") -> None:
        """Call the follower with each change, in the same step in which readers see the change."""


class Follower(Protocol[T_contra]):
    """Values that are computed from a store, and kept up to date."""

    def changed(self, old: T_contra | None, new: T_contra | None) -> None:
        """An object was added, replaced or removed. `old` or `new` is None if there was or is no object."""

    def replaced(self) -> None:
        """A new list has replaced many objects at once."""


class _Bucket(Generic[T]):
    """The objects with one index value. The tuple that readers get is cached until one of the objects changes."""

    __slots__ = ("cached_tuple", "objects")

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, T] = {}
        self.cached_tuple: tuple[T, ...] | None = None

    def tuple(self) -> tuple[T, ...]:
        if self.cached_tuple is None:
            self.cached_tuple = tuple(self.objects.values())
        return self.cached_tuple


class Shard(Generic[T]):
    """The objects of one scope. A scope is all namespaces, or one namespace."""

    def __init__(self, indexes: Indexes[T]) -> None:
        self.objects: dict[ObjectKey, T] = {}
        self._functions = indexes
        self._indexes: dict[str, dict[str, _Bucket[T]]] = {name: {} for name in indexes}

    def put(self, key: ObjectKey, new: T, *, same_values: bool = False) -> None:
        """Add or replace an object. `same_values` is True if the index values of the object have not changed."""
        old = None if same_values else self.objects.get(key)
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
        """Free the memory of the indexes. No index can be read after this call."""
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
    """A new list that is not yet visible to readers. `Store.commit` makes the complete list visible in one step.

    A list is a consistent read. It replaces a cached object even if the cached version is newer, because a restored
    server uses old versions again. It contains the cached object if nothing has changed, so it needs additional memory
    only for its indexes and for changed objects.

    `goes_back` is True if an object has an older version than in the cache. In a complete list, this proves that the
    server was restored. While a streaming list is incomplete, a later event may contain a newer version of the object.
    """

    def __init__(self, old: Shard[T], shard: Shard[T]) -> None:
        self.old = old
        self.shard = shard
        self._older: set[ObjectKey] = set()

    @property
    def goes_back(self) -> bool:
        return bool(self._older)

    def put(self, obj: T) -> None:
        key = obj.metadata.key
        cached = self.old.objects.get(key)
        self._older.discard(key)
        if cached is not None and cached.metadata.uid == obj.metadata.uid:
            if cached == obj:
                obj = cached
            elif is_older(obj.metadata.resource_version, cached.metadata.resource_version):
                self._older.add(key)
        self.shard.put(key, obj)

    def drop(self, key: ObjectKey) -> None:
        self._older.discard(key)
        if key in self.shard.objects:
            self.shard.drop(key)

    def keep(self, meta: ObjectMeta) -> None:
        """Add the cached state of an object that is in the list, but not decodable, if it has the same UID."""
        cached, listed = self.old.objects.get(meta.key), self.shard.objects.get(meta.key)
        if cached is None or cached.metadata.uid != meta.uid:
            return
        if listed is None or is_older(listed.metadata.resource_version, cached.metadata.resource_version):
            self._older.discard(meta.key)
            self.shard.put(meta.key, cached)

    def changes(self, *, at_once: int) -> Iterator[list[Change[T]]]:
        """Compare the new list with the old one. Yield slices of `at_once` changes, the removed objects first.

        Call it once, after the commit. It also frees the old objects slice by slice.
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
    """The cached objects of one resource. `scopes` are the watched namespaces, or `("",)` for all.

    `indexes` maps the name of each index to a function of an object, called at each write, that must not raise.
    """

    def __init__(self, *, indexes: Indexes[T] | None = None, scopes: Iterable[str] = (ALL_NAMESPACES,)) -> None:
        self._indexes: Indexes[T] = indexes or {}
        self._shards: dict[str, Shard[T]] = {scope: Shard(self._indexes) for scope in scopes}
        self._versions: dict[str, str] = dict.fromkeys(self._shards, "")
        self.rewinds = 0
        self._followers: list[Follower[T]] = []

    def __len__(self) -> int:
        return sum(len(shard.objects) for shard in self._shards.values())

    def get(self, key: ObjectKey) -> T | None:
        shard = self._shards.get(ALL_NAMESPACES, self._shards.get(key.namespace))
        return shard.objects.get(key) if shard is not None else None

    def keys(self, namespace: str) -> Collection[ObjectKey]:
        shard = self._shards.get(ALL_NAMESPACES, self._shards.get(namespace))
        return shard.objects.keys() if shard is not None else ()

    def values(self) -> tuple[T, ...]:
        return tuple(obj for shard in self._shards.values() for obj in shard.objects.values())

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        if len(self._shards) == 1:
            (shard,) = self._shards.values()
            return shard.by_index(index, value)
        return tuple(obj for shard in self._shards.values() for obj in shard.by_index(index, value))

    def version(self, namespace: str = ALL_NAMESPACES) -> str:
        return self._versions.get(ALL_NAMESPACES) or self._versions.get(namespace, "")

    def follow(self, follower: Follower[T]) -> None:
        self._followers.append(follower)

    def apply(self, obj: T, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        shard = self._shards[scope]
        key = obj.metadata.key
        cached = shard.objects.get(key)
        if cached is not None and not _is_newer(obj.metadata, cached.metadata):
            return ()
        difference = tuple(_difference(cached, obj))
        shard.put(key, obj, same_values=_is_only_version(difference))
        self._tell(cached, obj)
        self.advance(obj.metadata.resource_version, scope=scope)
        return difference

    def remove(self, meta: ObjectMeta, last: T | None = None, *, scope: str = ALL_NAMESPACES) -> tuple[Change[T], ...]:
        """Remove a deleted object, unless the cache has a newer version. Return the changes.

        `last` is the object of the DELETED event, or None if it cannot be decoded: then the cached state is reported.
        """
        shard = self._shards[scope]
        cached = shard.objects.get(meta.key)
        self.advance(meta.resource_version, scope=scope)
        if cached is None or _is_newer(cached.metadata, meta):
            return ()
        shard.drop(meta.key)
        self._tell(cached, None)
        return (Removed(cached if last is None or last.metadata.uid != cached.metadata.uid else last),)

    def begin_replace(self, *, scope: str = ALL_NAMESPACES) -> Replacement[T]:
        return Replacement(self._shards[scope], Shard(self._indexes))

    def commit(
        self, replacement: Replacement[T], version: str, *, scope: str = ALL_NAMESPACES, rewound: bool = False
    ) -> None:
        """Make the new list visible, `rewound` after a restore. Nothing else may write since `begin_replace`."""
        self._shards[scope] = replacement.shard
        self._versions[scope] = version
        self.rewinds += rewound or replacement.goes_back
        for follower in self._followers:
            follower.replaced()

    def advance(self, version: str, *, scope: str = ALL_NAMESPACES) -> None:
        """Record the resourceVersion of an event or a bookmark. Do nothing if a newer version is already recorded."""
        new, last = version_number(version), version_number(self._versions[scope])
        if new is None or last is None or new > last:
            self._versions[scope] = version

    def _tell(self, old: T | None, new: T | None) -> None:
        for follower in self._followers:
            follower.changed(old, new)


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
        yield Updated(old, new, differs_only_in_version(new, old))


def _is_only_version(difference: tuple[Change[T], ...]) -> bool:
    return isinstance(difference[0], Updated) and difference[0].only_version


def _is_newer(new: ObjectMeta, cached: ObjectMeta) -> bool:
    """If one of the versions is not a number, return True if the two versions are different."""
    one, other = version_number(new.resource_version), version_number(cached.resource_version)
    if one is None or other is None:
        return new.resource_version != cached.resource_version
    return one > other
