"""Groups of members that count how many members are read one by one."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from controller.runtime.members.groups import Group, Member, Members

T = TypeVar("T", bound=Member)


class Counter:
    read = 0


class CountedGroup(Group[T], Generic[T]):
    __slots__ = ("_counter",)

    def __init__(self, group: Group[T], counter: Counter) -> None:
        super().__init__(tuple(group), group.traits)
        self._counter = counter

    def __iter__(self) -> Iterator[T]:
        for each in super().__iter__():
            self._counter.read += 1
            yield each


def counted(members: Members[T]) -> tuple[Members[T], Counter]:
    counter = Counter()
    return Members(tuple(CountedGroup(group, counter) for group in members.groups)), counter
