"""A roster keeps the groups of the members of one set or pool, and changes them when a member changes.

Without a roster, each reconciliation would read all members. A roster reads only the members that have changed since
the last reconciliation. So one change costs the same for 100 and for 100,000 members.

The store says which members have changed. The roster reads them from the store when the next snapshot is taken. So a
snapshot always shows the contents of the store at one moment.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from controller.runtime.members.groups import CHUNK, Group, Members, grouped
from informers.meta import KubeObject, ObjectKey, ObjectMeta

T = TypeVar("T", bound=KubeObject)

SMALL: Final = 50
"""A set or pool with fewer members has no roster. Its members are grouped for each snapshot."""

SLICE: Final = 1000
"""The number of members that `Rosters.prepare` reads at once. That takes a few milliseconds."""

_SPAN: Final = 2**32


class Reader(Protocol[T]):
    """Reads the members of one set or pool from the store, for one snapshot."""

    def size(self) -> int:
        """Return the number of members, or a little more."""

    def names(self) -> Iterable[str]:
        """Return the names of all members. Names without a member are allowed, too."""

    def load(self) -> Iterable[T]:
        """Return all members."""

    def read(self, name: str) -> T | None:
        """Return the member with this name, or None."""

    def traits_of(self, member: T) -> Hashable:
        """Return the traits of a member that `load` or `read` has returned."""


class Roster(Generic[T]):
    """The members of one set or pool. `changed` are the names of the members that must be read again."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self._piles: dict[int, _Pile[T]] = {}
        self._numbers: dict[Hashable, int] = {}
        """The number of the pile for each value of the traits."""
        self._next_number = 0
        self._places: dict[str, int] = {}
        """The place of each member: number of the pile * _SPAN + position in the pile. One integer needs less memory
        than a tuple, and the garbage collector does not track it.
        """

    def members(self) -> Members[T]:
        return Members(tuple([pile.group() for pile in self._piles.values()]))

    def read(self, names: Iterable[str], reader: Reader[T]) -> None:
        """Read the members with these names again."""
        for name in names:
            member = reader.read(name)
            if member is not None:
                self.put(member, reader.traits_of(member))
            elif name in self._places:
                self._take(name, self._places[name])

    def put(self, member: T, traits: Hashable) -> None:
        """Record the present state of a member."""
        name = member.metadata.name
        place = self._places.get(name)
        if place is not None:
            number, position = divmod(place, _SPAN)
            pile = self._piles[number]
            if pile.traits == traits:
                pile.replace(position, member)
                return
            self._take(name, place)
        known = self._numbers.get(traits)
        number = self._add_pile(traits) if known is None else known
        self._places[name] = number * _SPAN + self._piles[number].append(member)

    def _take(self, name: str, place: int) -> None:
        """Remove a member from its pile. The last member of the pile gets its place."""
        number, position = divmod(place, _SPAN)
        pile = self._piles[number]
        moved = pile.take(position)
        if moved is not None:
            self._places[moved.metadata.name] = place
        del self._places[name]
        if not pile.number:
            del self._piles[number], self._numbers[pile.traits]

    def _add_pile(self, traits: Hashable) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        self._piles[number], self._numbers[traits] = _Pile(traits), number
        return number


class _Pile(Generic[T]):
    """A group that changes. All chunks but the last have `CHUNK` members."""

    __slots__ = ("_cached", "_chunks", "number", "traits")

    def __init__(self, traits: Hashable) -> None:
        self.traits = traits
        self.number = 0
        self._chunks: list[tuple[T, ...]] = []
        self._cached: Group[T] | None = None

    def group(self) -> Group[T]:
        if self._cached is None:
            self._cached = Group(self.number, tuple(self._chunks))
        return self._cached

    def replace(self, position: int, member: T) -> None:
        self._cached = None
        index, offset = divmod(position, CHUNK)
        chunk = self._chunks[index]
        self._chunks[index] = (*chunk[:offset], member, *chunk[offset + 1 :])

    def append(self, member: T) -> int:
        """Add a member and return its position."""
        self._cached = None
        if self.number % CHUNK:
            self._chunks[-1] += (member,)
        else:
            self._chunks.append((member,))
        self.number += 1
        return self.number - 1

    def take(self, position: int) -> T | None:
        """Remove the member at this position. Return the member that gets the position, or None."""
        self._cached = None
        self.number -= 1
        *rest, last = self._chunks[-1]
        if rest:
            self._chunks[-1] = tuple(rest)
        else:
            self._chunks.pop()
        if position == self.number:
            return None
        self.replace(position, last)
        return last


class Rosters(Generic[T]):
    """The rosters of all large sets or pools of a kind."""

    def __init__(self) -> None:
        self._rosters: dict[str, Roster[T]] = {}
        """The roster of each large set or pool, by its UID."""
        self._uids: dict[ObjectKey, str] = {}

    def __len__(self) -> int:
        return len(self._rosters)

    def __contains__(self, uid: object) -> bool:
        """Return True if the set or pool with this UID has a roster."""
        return uid in self._rosters

    def prepare(self, owner: ObjectMeta, reader: Reader[T]) -> Iterator[None]:
        """Read the changed members of a very large set or pool, or all of them if it has no roster yet.

        The caller may let other tasks run after each slice of members. At the end, at most one slice is left for
        `read`.
        """
        while (roster := self._rosters.get(owner.uid) or self._begin(owner, reader)) and len(roster.changed) > SLICE:
            roster.read([roster.changed.pop() for _ in range(SLICE)], reader)
            yield

    def read(self, owner: ObjectMeta, reader: Reader[T]) -> Members[T]:
        """Return the members of a set or pool, as the store shows them now."""
        roster = self._rosters.get(owner.uid)
        if roster is None:
            return self._load(owner, reader)
        roster.read(roster.changed, reader)
        roster.changed.clear()
        return roster.members()

    def change(self, uid: str, name: str) -> None:
        """Note that a member with this name was added, changed or removed. `uid` is the UID of the set or pool."""
        roster = self._rosters.get(uid)
        if roster is not None:
            roster.changed.add(name)

    def forget(self, owner: ObjectKey) -> None:
        """Remove the roster of a deleted set or pool."""
        self._rosters.pop(self._uids.pop(owner, ""), None)

    def forget_all(self) -> None:
        """Load all members again. The store has a new list."""
        self._rosters.clear()
        self._uids.clear()

    def _begin(self, owner: ObjectMeta, reader: Reader[T]) -> Roster[T] | None:
        """Add an empty roster, and note all members as changed. Return None if one slice has all members."""
        if reader.size() <= SLICE:
            return None
        roster: Roster[T] = Roster()
        roster.changed.update(reader.names())
        self._add(owner, roster)
        return roster

    def _add(self, owner: ObjectMeta, roster: Roster[T]) -> None:
        self.forget(owner.key)
        self._rosters[owner.uid], self._uids[owner.key] = roster, owner.uid

    def _load(self, owner: ObjectMeta, reader: Reader[T]) -> Members[T]:
        self.forget(owner.key)
        members = tuple(reader.load())
        if len(members) < SMALL:
            return grouped(members, reader.traits_of)
        roster: Roster[T] = Roster()
        for member in members:
            roster.put(member, reader.traits_of(member))
        self._add(owner, roster)
        return roster.members()
