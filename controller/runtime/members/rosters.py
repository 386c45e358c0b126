"""A roster keeps the groups of the members of one set or pool, and changes them when a member changes.

Without a roster, each reconciliation would read all members. A roster reads only the members that have changed since
the last reconciliation. It copies a group only if a plan iterates the group (see `Group`).

The store says which members have changed. The roster reads them from the store when the next snapshot is taken. So a
snapshot always shows the contents of the store at one moment.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar
from weakref import ref

from controller.runtime.members.groups import Group, Member, Members, grouped, traits_and_key
from informers.meta import ObjectKey, ObjectMeta

T = TypeVar("T", bound=Member)
T_co = TypeVar("T_co", bound=Member, covariant=True)

SMALL: Final = 50
"""A set or pool with fewer members has no roster. Its members are grouped for each snapshot."""

SLICE: Final = 1000
"""The number of members that `Rosters.prepare` reads at once. That takes a few milliseconds."""


class Reader(Protocol[T_co]):
    """Reads the members of one set or pool from the store, for one snapshot."""

    def size(self) -> int:
        """Return the number of members, or a little more."""

    def names(self) -> Iterable[str]:
        """Return the names of all members. Names without a member are allowed, too."""

    def load(self) -> Iterable[T_co]:
        """Return all members."""

    def read(self, name: str) -> T_co | None:
        """Return the member with this name, or None."""


class _LiveGroup(Generic[T]):
    """The present members with these traits, by name. `shown` returns the group of the last snapshot, or None."""

    __slots__ = ("key", "members", "shown", "traits")

    def __init__(self, traits: T, key: object) -> None:
        self.traits = traits
        self.key = key
        self.members: dict[str, T] = {}
        self.shown: Callable[[], Group[T] | None] = _nothing

    def show(self) -> Group[T]:
        """The group is the same as in the last snapshot if that snapshot still exists and no member has changed."""
        shown = self.shown()
        if shown is None:
            shown = Group(self.members.values(), self.traits)
            self.shown = ref(shown)
        return shown

    def put(self, name: str, member: T) -> None:
        self._keep_shown()
        self.members[name] = member

    def remove(self, name: str) -> None:
        self._keep_shown()
        del self.members[name]

    def _keep_shown(self) -> None:
        """Let the last snapshot keep the present members. This must be called before each change."""
        shown = self.shown()
        if shown is not None:
            shown.take()
        self.shown = _nothing


def _nothing() -> None:
    return None


class Roster(Generic[T]):
    """The members of one set or pool. `changed` are the names of the members that must be read again."""

    def __init__(self, erase: Callable[[T], T | None]) -> None:
        self.changed: set[str] = set()
        self._erase = erase
        self._groups: dict[object, _LiveGroup[T]] = {}
        self._group_of: dict[str, _LiveGroup[T]] = {}

    def members(self) -> Members[T]:
        return Members(tuple([group.show() for group in self._groups.values()]))

    def read(self, names: Iterable[str], reader: Reader[T]) -> None:
        for name in names:
            member = reader.read(name)
            if member is not None:
                self.put(member)
            else:
                self._remove(name)

    def put(self, member: T) -> None:
        name, (traits, key) = member.metadata.name, traits_and_key(member, self._erase)
        group = self._group_of.get(name)
        if group is None or traits is member or group.key != key:
            self._remove(name)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _LiveGroup(traits, key)
            self._group_of[name] = group
        group.put(name, member)

    def _remove(self, name: str) -> None:
        group = self._group_of.pop(name, None)
        if group is not None:
            group.remove(name)
            if not group.members:
                del self._groups[group.key]


class Rosters(Generic[T]):
    def __init__(self, erase: Callable[[T], T | None]) -> None:
        self._erase = erase
        self._rosters: dict[str, Roster[T]] = {}
        """The roster of each large set or pool, by its UID."""
        self._uids: dict[ObjectKey, str] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._rosters

    def prepare(self, owner: ObjectMeta, reader: Reader[T]) -> Iterator[None]:
        """Read the changed members of a very large set or pool in slices, at first all. One may be left for `read`."""
        while (roster := self._rosters.get(owner.uid) or self._begin(owner, reader)) and len(roster.changed) > SLICE:
            roster.read([roster.changed.pop() for _ in range(SLICE)], reader)
            yield

    def read(self, owner: ObjectMeta, reader: Reader[T]) -> Members[T]:
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
        self._rosters.pop(self._uids.pop(owner, ""), None)

    def forget_all(self) -> None:
        """Load all members again. The store has a new list."""
        self._rosters.clear()
        self._uids.clear()

    def _begin(self, owner: ObjectMeta, reader: Reader[T]) -> Roster[T] | None:
        """Add an empty roster, and note all members as changed. Return None if one slice has all members."""
        if reader.size() <= SLICE:
            return None
        roster: Roster[T] = Roster(self._erase)
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
            return grouped(members, self._erase)
        roster: Roster[T] = Roster(self._erase)
        for member in members:
            roster.put(member)
        self._add(owner, roster)
        return roster.members()
