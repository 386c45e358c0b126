"""The reports of a run: table, JSON and JUnit."""

import json
from xml.etree import ElementTree

from conformance.case import Case, Kind, Origin, Result, Status
from conformance.catalogue import CASES
from conformance.cluster import Cluster
from conformance.report import catalogue, render
from tests.conformance.stored_objects import SUBJECT

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
