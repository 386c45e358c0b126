"""The judge: each invariant accepts right histories and finds what is wrong in the others."""

from collections.abc import Mapping
from typing import Final

import pytest

from tests.faults.judge import cases_fields, cases_members, cases_objects, cases_progress, cases_replacements
from tests.faults.judge.history import History
from tests.faults.judge.judge import all_invariants, judge
from tests.faults.judge.made_history import Made, replica_set
from tests.faults.judge.steps import RUN, Case, Cases, Expectation, tell, user

MODULES: Final = (cases_members, cases_objects, cases_fields, cases_replacements, cases_progress)
CASES: Final[Mapping[str, Cases]] = {
    name: getattr(module, name) for module in MODULES for name in vars(module) if name in all_invariants()
}


@pytest.mark.parametrize(
    ("number", "case"),
    [
        pytest.param(number, case, id=f"{number} {name}")
        for number, cases in CASES.items()
        for name, case in cases.items()
    ],
)
def test_a_violation_is_found_and_a_right_history_has_none(number: str, case: Case) -> None:
    tell(case, number)


def test_each_invariant_has_a_right_and_a_wrong_history() -> None:
    for number in sorted(all_invariants()):
        expected = [each for case in CASES[number].values() for each in case if isinstance(each, Expectation)]
        assert {bool(each.text) for each in expected if each.is_checked} == {True, False}, number


def test_a_history_without_the_controller_has_no_violations() -> None:
    assert not judge(History(()), RUN)
    made = Made()
    user.create(replica_set(1))(made)
    user.member("herd-x")(made)
    assert not judge(made.history(), RUN)
