"""A roster keeps the groups of the members of one set or pool, and changes them when a member changes.

Without a roster, each reconciliation would read all members. A roster reads only the members that have changed since
the last reconciliation. So one change costs the same for 100 and for 100,000 members.

The store says which members have changed. The roster reads them from the store when the next snapshot is taken. So a
snapshot always shows the contents of the store at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from controller.runtime.members import CHUNK, Group, Members, grouped
from informers.meta import ObjectKey, ObjectMeta

T = TypeVar("T")

SMALL: Final = 50
"""A set or pool with fewer members has no roster. Its members are grouped for each snapshot."""

SLICE: Final = 1000
"""The number of members that `Rosters.prepare` reads at once. That takes a few milliseconds."""

_SPAN: Final = 2**32


class Roster(Generic[T]):
    """The members of one set or pool. `changed` are the names of the members that must be read again."""

    def __init__(
        self,
        members: Iterable[T],
        *,
        name_of: Callable[[T], str],
        traits_of: Callable[[T], Hashable],
    ) -> None:
        self.changed: set[str] = set()
        self._name_of = name_of
        self._traits_of = traits_of
        self._piles: dict[int, _Pile[T]] = {}
        self._numbers: dict[Hashable, int] = {}
        """The number of the pile for each value of the traits."""
        self._next_number = 0
        self._places: dict[str, int] = {}
        """The place of each member: number of the pile * _SPAN + position in the pile. One integer needs less memory
        than a tuple, and the garbage collector does not track it.
        """
        for group in grouped(members, traits_of).groups:
            number = self._add_pile(traits_of(group.chunks[0][0]), group)
            names = (name_of(member) for chunk in group.chunks for member in chunk)
            self._places.update((name, number * _SPAN + position) for position, name in enumerate(names))

    def members(self) -> Members[T]:
        return Members(tuple([pile.group() for pile in self._piles.values()]))

    def put(self, name: str, member: T | None) -> None:
        """Record the present state of the member with this name, or its absence."""
        traits = None if member is None else self._traits_of(member)
        place = self._places.get(name)
        if place is not None:
            number, position = divmod(place, _SPAN)
            pile = self._piles[number]
            if member is not None and pile.traits == traits:
                pile.replace(position, member)
                return
            self._take(name, number, position)
        if member is not None:
            known = self._numbers.get(traits)
            number = self._add_pile(traits, Group(0, ())) if known is None else known
            self._places[name] = number * _SPAN + self._piles[number].append(member)

    def _take(self, name: str, number: int, position: int) -> None:
        """Remove a member from its pile. The last member of the pile gets its position."""
        pile = self._piles[number]
        moved = pile.take(position)
        if moved is not None:
            self._places[self._name_of(moved)] = number * _SPAN + position
        del self._places[name]
        if not pile.number:
            del self._piles[number], self._numbers[pile.traits]

    def _add_pile(self, traits: Hashable, group: Group[T]) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        self._piles[number], self._numbers[traits] = _Pile(traits, group), number
        return number


class _Pile(Generic[T]):
    """A group that changes. All chunks but the last have `CHUNK` members."""

    __slots__ = ("_cached", "_chunks", "number", "traits")

    def __init__(self, traits: Hashable, group: Group[T]) -> None:
        self.traits = traits
        self.number = group.number
        self._chunks = list(group.chunks)
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
    """The rosters of all large sets or pools of a kind.

    `load` returns all members of a set or pool, and `read` returns the member with a name, or None. `size` returns the
    number of members, or a little more. All three read the store. `name_of` returns the name of a member.
    """

    def __init__(
        self,
        *,
        load: Callable[[ObjectMeta], Iterable[T]],
        read: Callable[[ObjectMeta, str], T | None],
        size: Callable[[ObjectMeta], int],
        name_of: Callable[[T], str],
        traits_of: Callable[[T], Hashable],
    ) -> None:
        self._load = load
        self._size = size
        self._read = read
        self._name_of = name_of
        self._traits_of = traits_of
        self._rosters: dict[str, Roster[T]] = {}
        """The roster of each large set or pool, by its UID."""
        self._uids: dict[ObjectKey, str] = {}

    def __len__(self) -> int:
        return len(self._rosters)

    def __contains__(self, uid: object) -> bool:
        """Return True if the set or pool with this UID has a roster."""
        return uid in self._rosters

    def prepare(self, owner: ObjectMeta) -> Iterator[list[str]]:
        """Read the changed members of a very large set or pool, or all of them if it has no roster yet.

        Yield the names of each slice of members that were read again. The caller may let other tasks run after each
        slice. At the end, at most one slice is left for `read`.
        """
        while (roster := self._rosters.get(owner.uid) or self._begin(owner)) and len(roster.changed) > SLICE:
            names = [roster.changed.pop() for _ in range(SLICE)]
            for name in names:
                roster.put(name, self._read(owner, name))
            yield names

    def members_of(self, owner: ObjectMeta) -> Members[T]:
        """Return the members of a set or pool, as the store shows them now."""
        return self.read(owner)[0]

    def read(self, owner: ObjectMeta) -> tuple[Members[T], frozenset[str] | None]:
        """Return the members, and the names of those that were read again. None means all."""
        roster = self._rosters.get(owner.uid)
        if roster is None:
            return self._load_members(owner), None
        changed = frozenset(roster.changed)
        for name in changed:
            roster.put(name, self._read(owner, name))
        roster.changed.clear()
        return roster.members(), changed

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

    def _begin(self, owner: ObjectMeta) -> Roster[T] | None:
        """Add an empty roster, and note all members as changed. Return None if one slice has all members."""
        if self._size(owner) <= SLICE:
            return None
        roster: Roster[T] = Roster((), name_of=self._name_of, traits_of=self._traits_of)
        roster.changed.update(map(self._name_of, self._load(owner)))
        self._add(owner, roster)
        return roster

    def _add(self, owner: ObjectMeta, roster: Roster[T]) -> None:
        self.forget(owner.key)
        self._rosters[owner.uid], self._uids[owner.key] = roster, owner.uid

    def _load_members(self, owner: ObjectMeta) -> Members[T]:
        self.forget(owner.key)
        members = tuple(self._load(owner))
        if len(members) < SMALL:
            return grouped(members, self._traits_of)
        roster = Roster(members, name_of=self._name_of, traits_of=self._traits_of)
        self._add(owner, roster)
        return roster.members()
