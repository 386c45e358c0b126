"""The changes of alerts in the chart's values."""

from pathlib import Path
from typing import Any

import yaml

from tests.helm import RUNBOOK, Helm, only
from tests.monitoring.queries import rule_groups
from tests.programs import finished
from tests.promtool import find_or_skip

GROUPS = rule_groups("alerts")
SHIPPED: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}


def alerts(helm: Helm, **values: Any) -> dict[str, dict[str, Any]]:
    """The rendered alerts by name. By default, they have no address of a runbook."""
    objects = helm.render({"metrics": {"prometheusRule": {"enabled": True, "runbookUrl": "", **values}}})
    groups = only(objects, "PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_a_disabled_alert_is_left_out_and_a_group_without_alerts_too(helm: Helm) -> None:
    assert alerts(helm).keys() - alerts(helm, alerts={"VmherdDown": {"enabled": False}}).keys() == {"VmherdDown"}
    first = {rule["alert"]: {"enabled": False} for rule in GROUPS[0]["rules"]}
    values = {"prometheusRule": {"enabled": True, "alerts": first}}
    rendered = only(helm.render({"metrics": values}), "PrometheusRule")["spec"]["groups"]
    names = [each["name"] for each in rendered if "alert" in each["rules"][0]]
    assert names == [group["name"] for group in GROUPS[1:]]


def test_a_threshold_and_a_time_change_the_alert_and_its_description_says_so(helm: Helm) -> None:
    changes = {
        "VmherdQueueBacklog": {"threshold": 500, "for": "30m"},
        "VmherdReconcileErrors": {"threshold": 0.25},
        "VmherdDown": {"threshold": 2},
    }
    found, usual = alerts(helm, alerts=changes), SHIPPED
    backlog = found["VmherdQueueBacklog"]
    assert (backlog["expr"], backlog["for"]) == (usual["VmherdQueueBacklog"]["expr"].replace("> 100\n", "> 500"), "30m")
    note = " (The values of the chart change this alert: threshold 500, for 30m.)"
    assert backlog["annotations"]["description"] == usual["VmherdQueueBacklog"]["annotations"]["description"] + note
    assert found["VmherdReconcileErrors"]["expr"].endswith(") > 0.25")
    assert found["VmherdDown"]["expr"] == "(count(vmherd_build_info) or vector(0)) < 2"
    rest = found.keys() - changes.keys()
    assert {name: found[name] for name in rest} == {name: usual[name] for name in rest}


def test_labels_and_runbooks_reach_every_alert_and_a_change_of_one_alert_wins(helm: Helm) -> None:
    url = "https://example.com/runbooks"
    change = {"severity": "info", "labels": {"team": "b"}, "annotations": {"runbook_url": "https://example.com/own"}}
    found = alerts(helm, alertLabels={"team": "a"}, runbookUrl=url, alerts={"VmherdPanics": change})
    panics = found.pop("VmherdPanics")
    assert panics["labels"] == {**SHIPPED["VmherdPanics"]["labels"], "team": "b", "severity": "info"}
    assert panics["annotations"]["runbook_url"] == "https://example.com/own"
    for name, rule in found.items():
        assert rule["labels"] == {**SHIPPED[name]["labels"], "team": "a"}
        assert rule["annotations"]["runbook_url"] == f"{url}#{name.lower()}"


def test_each_alert_has_a_threshold_and_prometheus_accepts_the_result(helm: Helm, tmp_path: Path) -> None:
    changes = {name: {"threshold": 7.5, "for": "1d"} for name in SHIPPED}
    found = alerts(helm, alerts=changes)
    assert found.keys() == changes.keys() != set()
    for name, rule in found.items():
        usual = SHIPPED[name]["expr"].rstrip()
        beginning, comparison, number = usual.rpartition(" < " if " < " in usual[-6:] else " > ")
        assert float(number) >= 0
        assert rule["expr"] == f"{beginning}{comparison}7.5"
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "changed", "rules": [*found.values()]}]}))
    checked = finished([find_or_skip(), "check", "rules", tmp_path / "alerts.yaml"])
    assert (checked.returncode, checked.stderr) == (0, "")


def test_without_an_address_no_alert_has_a_runbook(helm: Helm) -> None:
    usual = {name: rule["annotations"]["runbook_url"] for name, rule in alerts(helm, runbookUrl=None).items()}
    assert usual == {name: f"{RUNBOOK}#{name.lower()}" for name in SHIPPED}
    assert not [rule for rule in alerts(helm).values() if "runbook_url" in rule["annotations"]]


def test_kinds_of_the_prometheus_operator_that_the_cluster_lacks_are_left_out(helm: Helm) -> None:
    metrics = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}

    def made(*kinds: str) -> set[str]:
        rendered = {each["kind"] for each in helm.render({"metrics": metrics}, kinds=kinds)}
        return rendered & {"ServiceMonitor", "PrometheusRule"}

    assert made() == {"ServiceMonitor", "PrometheusRule"}, "the kinds of the cluster are unknown"
    assert made("apps/v1/Deployment") == set()
    assert made("apps/v1/Deployment", "monitoring.coreos.com/v1/ServiceMonitor") == {"ServiceMonitor"}
