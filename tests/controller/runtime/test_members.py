from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.vm_types import VirtualMachine
from controller.runtime.members.groups import grouped
from informers.meta import ObjectMeta


def last_digit(number: int) -> int:
    return number % 10


def vms_of(numbers: Iterable[int]) -> list[VirtualMachine]:
    return [VirtualMachine(metadata=ObjectMeta(name=str(number), uid=f"uid-{number}")) for number in numbers]


def digit_of(vm: VirtualMachine) -> int:
    return last_digit(int(vm.metadata.name))


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


@given(st.sets(st.integers(0, 10_000), max_size=60))
def test_the_first_member_of_each_group_has_the_first_name(numbers):
    by_digit: dict[int, list[str]] = {}
    for number in numbers:
        by_digit.setdefault(last_digit(number), []).append(str(number))
    members = grouped(vms_of(numbers), digit_of)
    assert [vm.metadata.name for vm in members.firsts()] == [min(names) for names in by_digit.values()]


@given(st.sets(st.integers(0, 10_000), max_size=60), st.data())
def test_members_are_left_out_by_their_uids(numbers, data):
    left_out = data.draw(st.sets(st.sampled_from(sorted(numbers)))) if numbers else set()
    members = grouped(vms_of(numbers), digit_of).without({f"uid-{number}" for number in left_out})
    assert {vm.metadata.name for vm in members} == {str(number) for number in numbers - left_out}
    assert all(len(group) > 0 for group in members.groups)
