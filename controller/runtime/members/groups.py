"""The members of a set or pool, in groups of similar members.

The *traits* of a member are the facts about it that most decisions need, for example its labels and its readiness. They
are a member whose other facts are blank: its name, its UID, its exact times. All members of a group have equal traits.
A set of 10,000 ready VMIs has one group.

A question about a group gets the traits, and never a member. So the answer cannot depend on the order of the members,
and its cost does not grow with their number. A decision that needs more than the traits must iterate the members.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from informers.meta import ObjectMeta


class Member(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


SOME_NODE: Final = "(a node)"
SOME_MESSAGE: Final = "(a message)"
"""What traits have in place of a text that differs from member to member."""

T = TypeVar("T", bound=Member)
S = TypeVar("S", bound=Struct)


def by_name(members: Iterable[T]) -> list[T]:
    return sorted(members, key=lambda each: each.metadata.name)


class Texts(dict[str, str]):
    """A mapping that can be a part of traits, because it has a hash. It is never changed."""

    __slots__ = ("_hash",)

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        super().__init__(items)
        self._hash = hash(frozenset(self.items()))

    def __hash__(self) -> int:  # type: ignore[override]
        return self._hash


@lru_cache(maxsize=1024)
def _texts(items: tuple[tuple[str, str], ...]) -> Texts:
    return Texts(items)


def texts_of(mapping: Mapping[str, str] | None) -> Texts | None:
    """Return the mapping as a part of traits, or None if it is empty. Equal mappings give the same object."""
    return _texts(tuple(mapping.items())) if mapping else None


def like(value: S, **fields: Any) -> S:
    """Return a copy of the value with other fields. The checks and changes of its constructor are left out."""
    changed: S = value.__copy__()  # type: ignore[attr-defined]
    for name, field in fields.items():
        force_setattr(changed, name, field)
    return changed


_NO_META: Final = ObjectMeta()


def shared_meta(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None, **fields: Any) -> ObjectMeta:
    """Return metadata that many members may have: with these labels and annotations, and without a name or UID."""
    return like(_NO_META, labels=texts_of(labels), annotations=texts_of(annotations), **fields)


_TAKING: Final = Lock()


class Group(Generic[T]):
    """Members with equal traits, at least one, which never change. A group of a roster copies its members only if a
    reader iterates it, or before the roster changes (`take`), under a lock: the side thread may do so, too.
    """

    __slots__ = ("__weakref__", "_members", "_size", "traits")

    def __init__(self, members: Collection[T], traits: T) -> None:
        """Create the group. If `members` can change, its owner must call `take` before."""
        self._members = members
        self._size = len(members)
        self.traits = traits

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return iter(self.take())

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

    def traits(self) -> list[T]:
        return [group.traits for group in self.groups]

    def where(self, holds: Callable[[T], bool]) -> "Members[T]":
        return Members(tuple([group for group in self.groups if holds(group.traits)]))

    def without(self, uids: Collection[str]) -> "Members[T]":
        if not uids:
            return self
        kept = ((tuple([each for each in group if each.metadata.uid not in uids]), group) for group in self.groups)
        return Members(tuple([Group(members, group.traits) for members, group in kept if members]))

    def some(self, holds: Callable[[T], bool]) -> bool:
        return any(map(holds, self.traits()))

    def firsts(self) -> list[T]:
        """Return the member of each group whose name is first in the alphabet."""
        return [min(group, key=lambda each: each.metadata.name) for group in self.groups]


def traits_and_key(member: T, erase: Callable[[T], T | None]) -> tuple[T, object]:
    """Return the traits of a member, and the key of its group. If `erase` returns None, it is alone in its group."""
    traits = erase(member)
    if traits is None:
        return member, member.metadata.name
    return traits, traits


def grouped(members: Iterable[T], erase: Callable[[T], T | None]) -> Members[T]:
    groups: dict[object, tuple[T, list[T]]] = {}
    for member in members:
        traits, key = traits_and_key(member, erase)
        groups.setdefault(key, (traits, []))[1].append(member)
    return Members(tuple([Group(found, traits) for traits, found in groups.values()]))


def one_by_one(members: Iterable[T]) -> Members[T]:
    return Members(tuple([Group((each,), each) for each in members]))
