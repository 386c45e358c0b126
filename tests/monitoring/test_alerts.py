"""The alerts, evaluated by promtool."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics_page import exported
from tests.monitoring.queries import FILES, metrics_in, queries, rules
from tests.programs import finished
from tests.promtool import find_or_skip

ALERTS = rules("alerts")
ABOUT_OBJECTS = {
    "VmherdReplicasMismatch",
    "VmherdUnavailableOverBudget",
    "VmherdRolloutStuck",
    "VmherdRolloutStalled",
    "VmherdStalled",
    "VmherdReplicaFailure",
    "VmherdHealingHeld",
    "VmherdHealingOften",
}
"""The alerts about the VMs of one set or pool. They have no impact on the health of the operator."""

CASES = Path(__file__).with_name("alerts.test.yaml")


@pytest.fixture(scope="module")
def promtool() -> Path:
    return find_or_skip()


def test_the_rules_are_well_formed(promtool: Path):
    done = finished([promtool, "check", "rules", FILES / "alerts.yaml", FILES / "recordings.yaml"])
    assert (done.returncode, done.stderr) == (0, "")
    assert f"SUCCESS: {len(ALERTS)} rules found" in done.stdout


def test_each_alert_fires_when_it_should_and_only_then(promtool: Path):
    done = finished([promtool, "test", "rules", CASES])
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_and_a_case_that_waits():
    """An alert with `for` needs a case in which the alert does not fire yet."""
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case.get("exp_alerts")}
    waits = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    assert fires == {rule["alert"] for rule in ALERTS}
    assert waits >= fires - {"VmherdHealingOften"}, "whose case has a pool beside it that heals now and then"


EXPRESSIONS = [rule["expr"] for rule in (*ALERTS, *rules("recordings"))]


def test_a_rule_queries_only_exported_metrics():
    names = {name for metric in exported().values() for name in metric.samples}
    assert {each: metrics_in(each) - names for each in EXPRESSIONS if metrics_in(each) - names} == {}


def test_a_rule_or_query_that_keeps_a_namespace_or_a_target_keeps_the_cluster():
    groupings = re.findall(r"\b(?:by|on) \(([^)]*)\)", "\n".join([*EXPRESSIONS, *(each.expr for each in queries())]))
    kept = [{*each.split(", ")} for each in groupings]
    assert len(kept) > 50
    assert [each for each in kept if each & {"namespace", "instance", "job"} and "cluster" not in each] == []


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_severity_and_says_what_to_do(rule: dict[str, Any]):
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["alert"].startswith("Vmherd")
    assert re.search(r"[<>] [0-9.]+\s*\Z", rule["expr"]), "the threshold in the values of the chart"


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_the_labels_of_kubevirts_alerts(rule: dict[str, Any]):
    labels = {key: value for key, value in rule["labels"].items() if key != "severity"}
    assert labels == {
        "kubernetes_operator_part_of": "kubevirt",
        "kubernetes_operator_component": "vmherd",
        "operator_health_impact": labels["operator_health_impact"],
    }
    impact = "none" if rule["alert"] in ABOUT_OBJECTS else rule["labels"]["severity"]
    assert labels["operator_health_impact"] == impact
