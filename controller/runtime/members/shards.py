"""An immutable mapping from names to values, of which a changed copy is cheap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar, overload

V = TypeVar("V")
D = TypeVar("D")

SHARDS: Final = 256
"""The number of dictionaries of a mapping. A changed copy shares all dictionaries without a changed name."""


class ShardedMap(Mapping[str, V]):
    """The values by name. They are spread over several dictionaries, by the hash of the name."""

    def __init__(self, items: Iterable[tuple[str, V]] = ()) -> None:
        self._shards: list[dict[str, V]] = [{} for _ in range(SHARDS)]
        for name, value in items:
            self._shards[hash(name) % SHARDS][name] = value

    def changed(self, changes: Mapping[str, V | None]) -> ShardedMap[V]:
        """Return a copy with these values. A name with the value None is removed."""
        if not changes:
            return self
        copy: ShardedMap[V] = ShardedMap.__new__(ShardedMap)
        copy._shards = list(self._shards)
        for index in {hash(name) % SHARDS for name in changes}:
            copy._shards[index] = dict(self._shards[index])
        for name, value in changes.items():
            shard = copy._shards[hash(name) % SHARDS]
            if value is None:
                shard.pop(name, None)
            else:
                shard[name] = value
        return copy

    def __getitem__(self, name: str) -> V:
        return self._shards[hash(name) % SHARDS][name]

    @overload
    def get(self, name: str, /) -> V | None: ...
    @overload
    def get(self, name: str, default: D, /) -> V | D: ...
    def get(self, name: str, default: Any = None, /) -> Any:
        return self._shards[hash(name) % SHARDS].get(name, default)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._shards)

    def __len__(self) -> int:
        return sum(map(len, self._shards))
