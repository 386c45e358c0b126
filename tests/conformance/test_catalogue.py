"""The catalogue of conformance cases: ids, titles, the selection by patterns, and the table in the manual."""

import re
from collections import Counter
from pathlib import Path

import pytest

from conformance import cases as case_modules
from conformance.case import Kind, Origin
from conformance.catalogue import CASES, select
from conformance.report import catalogue
from tests.test_rules import RULES

MANUAL = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text()


def test_each_id_is_unique_and_begins_with_its_kind():
    assert [id for id, count in Counter(case.id for case in CASES).items() if count > 1] == []
    assert [
        case.id for case in CASES if not re.fullmatch(rf"{case.kind.removesuffix('s')}(-[a-z0-9]+)+", case.id)
    ] == []


def test_each_title_is_one_sentence_without_a_full_stop():
    assert [case.title for case in CASES if not re.fullmatch(r"[A-Za-z][^|]*[a-zA-Z0-9]", case.title)] == []


def test_each_case_names_rules_of_its_kind():
    letters = {Kind.SETS: "R", Kind.POOLS: "P"}
    for case in CASES:
        assert set(case.rules.split()) <= {*RULES}
        assert all(rule.startswith(letters[case.kind]) for rule in case.rules.split()), case.id


def test_both_kinds_have_at_least_thirty_behaviours_of_kubevirt():
    counts = Counter(case.kind for case in CASES if case.origin is Origin.KUBEVIRT)
    assert all(counts[kind] >= 30 for kind in Kind)


def test_every_module_of_cases_is_in_the_catalogue():
    folder = Path(str(case_modules.__file__)).parent
    modules = {f"{case_modules.__name__}.{path.stem}" for path in folder.glob("*.py")} - {
        f"{case_modules.__name__}.__init__"
    }
    assert {case.check.__module__ for case in CASES} == modules


def test_the_manual_has_the_table_of_all_cases():
    assert catalogue(CASES) in MANUAL


@pytest.mark.parametrize(
    ("only", "skip", "count"),
    [
        (("set-scale-in",), (), 1),
        (("set-scale-*",), ("set-scale-in",), 5),
        (("R13",), (), 1),
        (("set-names", "set-names"), (), 1),
        ((), ("set-*", "pool-*"), 0),
    ],
)
def test_patterns_of_ids_and_rules_select_cases(only: tuple[str, ...], skip: tuple[str, ...], count: int):
    assert len(select(CASES, only=only, skip=skip)) == count


def test_a_kind_selects_its_cases():
    assert {case.kind for case in select(CASES, kind=Kind.POOLS)} == {Kind.POOLS}
    assert select(CASES, kind=Kind.POOLS, only=("set-names",)) == []


def test_a_pattern_without_a_case_is_an_error():
    with pytest.raises(ValueError, match="no case matches 'set-nmaes'"):
        select(CASES, skip=("set-nmaes",))
