"""The changes of alerts in the chart's values."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from charts.generated import CHART
from tests.helm import Helm, only
from tests.promtool import find_or_skip


def alerts(helm: Helm, **values: Any) -> dict[str, dict[str, Any]]:
    """The rendered alerts by name."""
    objects = helm.render({"metrics": {"prometheusRule": {"enabled": True, **values}}})
    groups = only(objects, "PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def shipped() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_a_disabled_alert_is_left_out_and_a_group_without_alerts_too(helm: Helm) -> None:
    assert alerts(helm).keys() - alerts(helm, alerts={"VmherdDown": {"enabled": False}}).keys() == {"VmherdDown"}
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    first = {rule["alert"]: {"enabled": False} for rule in groups[0]["rules"]}
    values = {"prometheusRule": {"enabled": True, "alerts": first}}
    names = [each["name"] for each in only(helm.render({"metrics": values}), "PrometheusRule")["spec"]["groups"]]
    assert names == [group["name"] for group in groups[1:]]


def test_a_threshold_and_a_time_change_the_alert_and_its_description_says_so(helm: Helm) -> None:
    changes = {
        "VmherdQueueBacklog": {"threshold": 500, "for": "30m"},
        "VmherdReconcileErrors": {"threshold": 0.25},
    }
    found, usual = alerts(helm, alerts=changes), shipped()
    backlog = found["VmherdQueueBacklog"]
    assert (backlog["expr"], backlog["for"]) == (
        usual["VmherdQueueBacklog"]["expr"].replace("> 100\n", "> 500"),
        "30m",
    )
    note = " (The values of the chart change this alert: threshold 500, for 30m.)"
    assert backlog["annotations"]["description"] == usual["VmherdQueueBacklog"]["annotations"]["description"] + note
    assert found["VmherdReconcileErrors"]["expr"].endswith(") > 0.25")
    rest = found.keys() - changes.keys()
    assert {name: found[name] for name in rest} == {name: usual[name] for name in rest}


def test_labels_and_runbooks_reach_every_alert_and_a_change_of_one_alert_wins(helm: Helm) -> None:
    url = "https://example.com/runbooks"
    change = {"severity": "info", "labels": {"team": "b"}, "annotations": {"runbook_url": "https://example.com/own"}}
    found = alerts(helm, alertLabels={"team": "a"}, runbookUrl=url, alerts={"VmherdPanics": change})
    panics = found.pop("VmherdPanics")
    assert panics["labels"] == {"team": "b", "severity": "info"}
    assert panics["annotations"]["runbook_url"] == "https://example.com/own"
    for name, rule in found.items():
        assert rule["labels"] == {**shipped()[name]["labels"], "team": "a"}
        assert rule["annotations"]["runbook_url"] == f"{url}#{name.lower()}"


def test_each_alert_with_a_number_has_a_threshold_and_prometheus_accepts_the_result(helm: Helm, tmp_path: Path) -> None:
    promtool = find_or_skip()
    numbered = [name for name, rule in shipped().items() if rule["expr"].rstrip().rpartition("> ")[2][:1].isdigit()]
    assert len(numbered) > 5
    found = alerts(helm, alerts={name: {"threshold": 7.5, "for": "1d"} for name in numbered})
    assert all(found[name]["expr"].endswith("> 7.5") for name in numbered)
    path = tmp_path / "alerts.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "changed", "rules": list(found.values())}]}))
    assert shutil.which(str(promtool))
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_kinds_of_the_prometheus_operator_that_the_cluster_lacks_are_left_out(helm: Helm) -> None:
    metrics = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}

    def made(*kinds: str) -> set[str]:
        return {each["kind"] for each in helm.render({"metrics": metrics}, kinds=kinds)} & {
            "ServiceMonitor",
            "PrometheusRule",
        }

    assert made() == {"ServiceMonitor", "PrometheusRule"}, "the kinds of the cluster are unknown"
    assert made("apps/v1/Deployment") == set()
    assert made("apps/v1/Deployment", "monitoring.coreos.com/v1/ServiceMonitor") == {"ServiceMonitor"}
