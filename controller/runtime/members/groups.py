"""The members of a set or pool, in groups of similar members.

The *traits* of a member are the facts about it that most decisions need, for example its labels and its readiness. All
members of a group have equal traits. A set of 10,000 ready VMIs has one group. So a decision that depends only on
traits asks one member of each group, and its cost does not grow with the number of members.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import chain
from threading import Lock
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from informers.meta import ObjectMeta


class Member(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Member)


_TAKING: Final = Lock()


class Group(Generic[T]):
    """Members with equal traits. A group is never empty, and its members never change.

    Most decisions need only the size of a group and one member. So a group of a roster copies the members of the roster
    only if a reader iterates the group, or before the roster changes. From then on, the group has its own tuple.

    Two threads may use a group: a plan in the side thread iterates it, and the event loop changes the roster. The
    roster calls `take` before each change. `take` copies under a lock. So either the plan has copied the members before
    the change, or the roster has, and the plan gets this copy. No other code reads the roster during its change.
    """

    __slots__ = ("__weakref__", "_first", "_members", "_size")

    def __init__(self, members: Collection[T]) -> None:
        """Create the group. If `members` can change, its owner must call `take` before."""
        self._members = members
        self._size = len(members)
        self._first = next(iter(members))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return iter(self.take())

    def __getitem__(self, index: int) -> T:
        return self._first if index == 0 else self.take()[index]

    def take(self) -> tuple[T, ...]:
        """Return the members as a tuple, and keep the tuple."""
        with _TAKING:
            self._members = taken = tuple(self._members)
        return taken


class Members(Struct, Generic[T], frozen=True):
    """The members of a set or pool, or a part of them, in groups. This value is immutable."""

    groups: tuple[Group[T], ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.groups)

    def __contains__(self, member: object) -> bool:
        return any(each is member for each in self)

    def __add__(self, other: "Members[T]") -> "Members[T]":
        return Members(self.groups + other.groups) if other.groups else self

    def examples(self) -> list[T]:
        return [group[0] for group in self.groups]

    def where(self, holds: Callable[[T], bool]) -> "Members[T]":
        """Return the members for which `holds` is true. The function `holds` must depend only on the traits."""
        return Members(tuple([group for group in self.groups if holds(group[0])]))

    def without(self, uids: Collection[str]) -> "Members[T]":
        if not uids:
            return self
        kept = (tuple([each for each in group if each.metadata.uid not in uids]) for group in self.groups)
        return Members(tuple(map(Group, filter(None, kept))))

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
    return Members(tuple(map(Group, groups.values())))
