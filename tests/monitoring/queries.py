"""The alerts and dashboards of the chart, and PromQL: the metrics in a query, and the values of Grafana's variables."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FILES = Path(__file__).resolve().parents[2] / "charts" / "vmherd" / "files"
DASHBOARDS = FILES / "dashboards"
_METRIC = re.compile(
    r"\b(?:vmherd|workqueue|controller_runtime|rest_client|leader_election|kubevirt|process|python)_\w+"
)


class Query(NamedTuple):
    dashboard: str
    panel: str
    expr: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}"


def rule_groups(name: str) -> list[dict[str, Any]]:
    """The groups of rules in the file `alerts` or `recordings`."""
    return list(yaml.safe_load((FILES / f"{name}.yaml").read_text())["groups"])


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in rule_groups(name) for rule in group["rules"]]


def dashboards() -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def queries() -> Iterator[Query]:
    """The queries of all panels and annotations."""
    for name, board in dashboards().items():
        for annotation in board["annotations"]["list"]:
            yield Query(name, annotation["name"], annotation["expr"])
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield Query(name, panel["title"], target["expr"])


def metrics_in(query: str) -> set[str]:
    """The names of the project's metrics in a query, found by their prefixes."""
    return set(_METRIC.findall(re.sub(r'"[^"]*"', '""', query)))


def filled_in(query: str, **values: str) -> str:
    """A panel's query as Grafana sends it. A variable without a given value is "All"."""
    chosen: Mapping[str, str] = {"__rate_interval": "1m", **values}
    return re.sub(r"\$(\w+)", lambda match: chosen.get(match[1], ".*"), query)
