"""docs/metrics.md lists exactly the metrics and alerts that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from controller.server.authorization import ALLOWED_AT_MOST_S, ALLOWED_FOR_S, DENIED_FOR_S
from tests.metrics_page import exported

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/metrics.md").read_text()


def rows(section: str) -> Iterator[list[str]]:
    """The cells of the table rows below a heading, without the header rows."""
    body = re.split(r"^## ", TEXT.partition(f"\n## {section}\n")[2], flags=re.MULTILINE)[0]
    for line in body.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def documented() -> dict[str, tuple[str, str]]:
    sections = ("Replica sets and pools", "What is done to VMs", "The controller", "The process")
    all_rows = [row for section in sections for row in rows(section)]
    names = [row[0].strip("`") for row in all_rows]
    assert len(names) == len(set(names))
    assert all(row[3] for row in all_rows)
    return {name: (row[1], row[2]) for name, row in zip(names, all_rows, strict=True)}


def test_the_page_lists_exactly_the_exported_metrics_with_types_and_labels():
    assert documented() == {name: (metric.type, ", ".join(metric.labels)) for name, metric in exported().items()}


def test_the_page_lists_every_alert_with_its_severity():
    groups = yaml.safe_load((ROOT / "charts/vmherd/files/alerts.yaml").read_text())["groups"]
    alerts = {rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]}
    documented_alerts = {row[0].strip("`"): row[1] for row in rows("Alerts")}
    assert documented_alerts == alerts
    assert all(row[2] and row[3] for row in rows("Alerts"))


def test_the_page_lists_every_recording_rule():
    groups = yaml.safe_load((ROOT / "charts/vmherd/files/recordings.yaml").read_text())["groups"]
    records = [rule["record"] for group in groups for rule in group["rules"]]
    assert [row[0].strip("`") for row in rows("Recording rules")] == records


def test_the_page_has_the_time_limits_of_the_program():
    assert (ALLOWED_FOR_S, DENIED_FOR_S, ALLOWED_AT_MOST_S) == (60, 10, 300)
    assert "a permission for a minute, and a denial for ten seconds" in TEXT
    assert "up to five minutes" in TEXT
