"""The reports of a run: table, Markdown, JSON and JUnit. And the catalogue of the cases."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from conformance import cases as case_modules
from conformance.case import Case, Kind, Origin, Result, Status
from conformance.catalogue import CASES, select
from conformance.cluster import Cluster
from conformance.report import catalogue, render
from controller.commands import conformance
from tests.conformance.stored_objects import SUBJECT
from tests.test_rules import RULES

CLUSTER = Cluster(subjects={Kind.SETS: SUBJECT}, reconcilers={Kind.SETS: "virt-controller"})
FIRST, SECOND, THIRD, FOURTH = CASES[:4]
RESULTS = [
    Result(case=FIRST, status=Status.PASSED, seconds=1.25),
    Result(case=SECOND, status=Status.FAILED, seconds=30.0, expected="1 VMI within 30 s", seen='[] <"&\x00'),
    Result(case=THIRD, status=Status.SKIPPED, reason="not here"),
    Result(case=FOURTH, status=Status.DIFFERS, seconds=2.0, expected="a mark", seen="none"),
]


def test_the_table_has_a_row_for_each_case_and_a_line_for_each_reason():
    lines = render("table", CLUSTER, RESULTS, 33.4).splitlines()
    assert lines[0] == "sets: virtualmachineinstancereplicasets.kubevirt.io/v1, reconciled by virt-controller"
    assert lines[2].split(maxsplit=3) == ["passed", FIRST.id, "1.2s", FIRST.title]
    assert lines[3].split()[:3] == ["failed", SECOND.id, "30.0s"]
    assert lines[4].strip().startswith("expected 1 VMI within 30 s; seen: [] ")
    assert lines[6].strip() == "not here"
    assert lines[-1] == "4 cases in 33 s: 1 passed, 1 failed, 1 skipped, 1 differs"


async def test_a_run_shows_the_place_of_each_result_and_after_an_interruption_what_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def interrupted(*_: Any, on_result: Callable[[Result], None], **__: Any) -> list[Result]:
        for result in RESULTS[:2]:
            on_result(result)
        raise asyncio.CancelledError

    monkeypatch.setattr(conformance, "run_cases", interrupted)
    setup: Any = None
    with pytest.raises(asyncio.CancelledError):
        await conformance._run(setup, CLUSTER, CASES, conformance.Settings())
    lines, total = capsys.readouterr().out.splitlines(), len(CASES)
    assert lines[2].split(maxsplit=6)[:5] == ["1", "of", str(total), "passed", FIRST.id]
    assert lines[3].split()[:5] == ["2", "of", str(total), "failed", SECOND.id]
    assert lines[-2] == f"interrupted before {total - 2} of {total} cases had a result"
    assert lines[-1] == "2 cases in 0 s: 1 passed, 1 failed, 0 skipped, 0 differs"


def test_markdown_names_the_cluster_and_keeps_its_columns_whatever_a_case_has_seen():
    odd = Result(case=SECOND, status=Status.FAILED, seconds=30.0, expected="1 VMI", seen="a | b\nc")
    cluster = Cluster(subjects=CLUSTER.subjects, reconcilers=CLUSTER.reconcilers, versions={"KubeVirt": "v1.9.0"})
    lines = render("markdown", cluster, [RESULTS[0], odd], 33.4).splitlines()
    assert lines[2:4] == ["| KubeVirt | v1.9.0 |", "| sets reconciled by | virt-controller |"]
    assert lines[7] == f"| `{FIRST.id}` | passed | 1 | {FIRST.title} |"
    assert lines[8] == f"| `{SECOND.id}` | failed (expected 1 VMI; seen: a \\| b c) | 30 | {SECOND.title} |"


def test_json_has_the_counts_and_all_fields():
    report = json.loads(render("json", CLUSTER, RESULTS, 33.4))
    assert report["kinds"] == {"sets": {"group": "kubevirt.io", "version": "v1", "reconciler": "virt-controller"}}
    assert report["counts"] == {"passed": 1, "failed": 1, "skipped": 1, "differs": 1}
    assert [(each["id"], each["status"]) for each in report["cases"]] == [
        (result.case.id, result.status) for result in RESULTS
    ]
    assert report["cases"][1]["expected"] == "1 VMI within 30 s"


def test_junit_counts_failures_and_shows_differences_as_skipped():
    suite = ElementTree.fromstring(render("junit", CLUSTER, RESULTS, 33.4))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "2")
    passed, failed, skipped, differs = suite.findall("testcase")
    assert len(passed) == 0
    assert failed[0].tag == "failure"
    assert failed[0].get("message") == 'expected 1 VMI within 30 s; seen: [] <"& '
    assert skipped[0].tag == differs[0].tag == "skipped"
    assert (differs[0].get("message") or "").startswith("differs: expected a mark")


def test_cases_of_vmherd_are_marked_in_the_list():
    own = next(case for case in CASES if case.origin is Origin.VMHERD)
    assert isinstance(own, Case)
    assert f"| `{own.id}` | {own.title} | {own.rules} | vmherd |  |" in catalogue(CASES)


# The catalogue: ids, titles, the selection by patterns, and the table in the manual


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
