"""The members of a set or pool, in groups of similar members.

The *traits* of a member are the facts about it that most decisions need, for example its labels and its readiness. All
members of a group have equal traits. A set of 10,000 ready VMIs has one group. So a decision that depends only on
traits asks one member of each group, and its cost does not grow with the number of members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from informers.meta import ObjectMeta


class Member(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Member)


class Members(Struct, Generic[T], frozen=True):
    """The members of a set or pool, or a part of them. This value is immutable.

    Each group is a tuple of members with equal traits. No group is empty.
    """

    groups: tuple[tuple[T, ...], ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.groups)

    def __contains__(self, member: object) -> bool:
        return any(each is member for each in self)

    def __add__(self, other: Members[T]) -> Members[T]:
        return Members(self.groups + other.groups) if other.groups else self

    def examples(self) -> list[T]:
        """Return one member of each group."""
        return [group[0] for group in self.groups]

    def where(self, holds: Callable[[T], bool]) -> Members[T]:
        """Return the members for which `holds` is true. The function `holds` must depend only on the traits."""
        return Members(tuple([group for group in self.groups if holds(group[0])]))

    def without(self, uids: Collection[str]) -> Members[T]:
        """Return the members without the members that have one of these UIDs."""
        if not uids:
            return self
        kept = (tuple([each for each in group if each.metadata.uid not in uids]) for group in self.groups)
        return Members(tuple(filter(None, kept)))

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
    return Members(tuple(map(tuple, groups.values())))
