"""The alerts, evaluated by promtool."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics_page import exported
from tests.monitoring.dashboards import queries
from tests.monitoring.queries import metrics_in
from tests.promtool import find_or_skip

ALERTS = Path(__file__).resolve().parents[2] / "charts/vmherd/files/alerts.yaml"
RECORDINGS = ALERTS.with_name("recordings.yaml")
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


@cache
def rules() -> tuple[dict[str, Any], ...]:
    return tuple(rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"])


@pytest.fixture(scope="module")
def promtool() -> Path:
    return find_or_skip()


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_rules_are_well_formed(promtool: Path):
    done = run(promtool, "check", "rules", ALERTS, RECORDINGS)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"SUCCESS: {len(rules())} rules found" in done.stdout


def test_each_alert_fires_when_it_should_and_only_then(promtool: Path):
    done = run(promtool, "test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_and_a_case_that_waits():
    """An alert with `for` needs a case in which the alert does not fire yet."""
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case.get("exp_alerts")}
    waits = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    assert fires == {rule["alert"] for rule in rules()}
    assert waits >= fires - {"VmherdHealingOften"}, "whose case has a pool beside it that heals now and then"


def expressions() -> list[str]:
    recordings = yaml.safe_load(RECORDINGS.read_text())["groups"][0]["rules"]
    return [rule["expr"] for rule in (*rules(), *recordings)]


def test_a_rule_queries_only_exported_metrics():
    names = {name for metric in exported().values() for name in metric.samples}
    assert {each: metrics_in(each) - names for each in expressions() if metrics_in(each) - names} == {}


def test_a_rule_or_query_that_keeps_a_namespace_or_a_target_keeps_the_cluster():
    groupings = re.findall(r"\b(?:by|on) \(([^)]*)\)", "\n".join([*expressions(), *(each.expr for each in queries())]))
    kept = [{*each.split(", ")} for each in groupings]
    assert len(kept) > 50
    assert [each for each in kept if each & {"namespace", "instance", "job"} and "cluster" not in each] == []


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_has_a_severity_and_says_what_to_do(rule: dict[str, Any]):
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["alert"].startswith("Vmherd")


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_has_the_labels_of_kubevirts_alerts(rule: dict[str, Any]):
    labels = {key: value for key, value in rule["labels"].items() if key != "severity"}
    assert labels == {
        "kubernetes_operator_part_of": "kubevirt",
        "kubernetes_operator_component": "vmherd",
        "operator_health_impact": labels["operator_health_impact"],
    }
    impact = "none" if rule["alert"] in ABOUT_OBJECTS else rule["labels"]["severity"]
    assert labels["operator_health_impact"] == impact


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_expression_ends_with_a_comparison_with_a_number(rule: dict[str, Any]):
    """The chart replaces this number by the threshold in its values."""
    assert re.search(r"[<>] [0-9.]+\s*\Z", rule["expr"])
