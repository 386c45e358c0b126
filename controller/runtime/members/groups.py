"""The members of a set or pool, in groups of similar members.

The *traits* of a member are the facts about it that most decisions need, for example its labels and its readiness. All
members of a group have equal traits. A set of 100,000 ready VMIs has one group. So a decision that depends only on
traits asks one member of each group, and its cost does not grow with the number of members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Generic, TypeVar

from msgspec import Struct

from informers.meta import KubeObject

T = TypeVar("T", bound=KubeObject)

CHUNK: Final = 256
"""The number of members in a chunk. A change of one member copies one chunk."""


class Group(Struct, Generic[T], frozen=True):
    """Members with equal traits. `number` is the number of members, at least 1. Only the last chunk may be shorter than
    `CHUNK`.
    """

    number: int
    chunks: tuple[tuple[T, ...], ...]

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.chunks)

    @property
    def example(self) -> T:
        return self.chunks[0][0]


class Members(Struct, Generic[T], frozen=True):
    """The members of a set or pool, or a part of them, in groups. This value is immutable."""

    groups: tuple[Group[T], ...] = ()

    def __len__(self) -> int:
        return sum([group.number for group in self.groups])

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.groups)

    def __contains__(self, member: object) -> bool:
        return any(each is member for each in self)

    def __add__(self, other: Members[T]) -> Members[T]:
        return Members(self.groups + other.groups) if other.groups else self

    def examples(self) -> list[T]:
        """Return one member of each group."""
        return [group.example for group in self.groups]

    def where(self, holds: Callable[[T], bool]) -> Members[T]:
        """Return the members for which `holds` is true. The function `holds` must depend only on the traits."""
        return Members(tuple([group for group in self.groups if holds(group.example)]))

    def without(self, uids: Collection[str]) -> Members[T]:
        """Return the members without the members that have one of these UIDs."""
        if not uids:
            return self
        kept = ([each for each in group if each.metadata.uid not in uids] for group in self.groups)
        return Members(tuple([Group(len(each), tuple(chunks_of(each))) for each in kept if each]))

    def some(self, holds: Callable[[T], bool]) -> bool:
        """Return True if `holds` is true for a member. The function `holds` must depend only on the traits."""
        return any(map(holds, self.examples()))

    def firsts(self) -> list[T]:
        """Return the member of each group whose name is first in the alphabet."""
        return [min(group, key=lambda each: each.metadata.name) for group in self.groups]


def grouped(members: Iterable[T], traits_of: Callable[[T], Hashable]) -> Members[T]:
    """Return the members in groups. Members with equal `traits_of` are in one group."""
    groups: dict[Hashable, list[T]] = {}
    for member in members:
        groups.setdefault(traits_of(member), []).append(member)
    return Members(tuple([Group(len(group), tuple(chunks_of(group))) for group in groups.values()]))


def chunks_of(members: Sequence[T]) -> list[tuple[T, ...]]:
    return [tuple(members[start : start + CHUNK]) for start in range(0, len(members), CHUNK)]
