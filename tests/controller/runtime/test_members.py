from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.runtime.members import CHUNK, Members, grouped


def last_digit(number: int) -> int:
    return number % 10


@given(st.lists(st.integers(0, 10_000), unique=True, max_size=60))
def test_the_groups_contain_each_member_once(numbers):
    members = grouped(numbers, last_digit)
    assert len(members) == len(numbers)
    assert sorted(members) == sorted(numbers)
    assert all(number in members for number in numbers)
    assert "x" not in members


@given(st.lists(st.integers(0, 10_000), unique=True, max_size=60), st.integers(0, 9))
def test_a_choice_by_a_trait_is_the_choice_of_each_member(numbers, digit):
    members = grouped(numbers, last_digit)
    assert sorted(members.where(lambda each: last_digit(each) == digit)) == sorted(
        number for number in numbers if last_digit(number) == digit
    )
    assert members.some(lambda each: last_digit(each) == digit) == any(last_digit(each) == digit for each in numbers)


def test_a_choice_asks_one_member_of_each_group():
    asked = []
    chosen = grouped(range(10_000), last_digit).where(lambda each: bool(asked.append(each)) or last_digit(each) == 3)
    assert len(asked) == 10
    assert len(chosen) == 1000


def test_two_parts_can_be_joined():
    members = grouped(range(20), last_digit)
    joined = members.where(lambda each: last_digit(each) < 5) + members.where(lambda each: last_digit(each) >= 5)
    assert sorted(joined) == list(range(20))
    assert joined + Members() is joined


def test_there_is_no_empty_group():
    assert grouped([], last_digit).groups == ()
    assert not grouped([], last_digit)


def test_a_large_group_has_chunks_of_one_size():
    (group,) = grouped(range(2 * CHUNK + 1), lambda _: "one trait").groups
    assert [len(chunk) for chunk in group.chunks] == [CHUNK, CHUNK, 1]
