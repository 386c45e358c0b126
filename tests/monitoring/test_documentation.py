"""docs/metrics.md lists exactly the metrics and alerts that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

from controller.server.authorization import ALLOWED_AT_MOST_S, ALLOWED_FOR_S, DENIED_FOR_S
from tests.metrics_page import exported
from tests.monitoring.queries import rules

TEXT = (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text()


def rows(section: str) -> Iterator[list[str]]:
    """The cells of the table rows below a heading, without the header rows."""
    body = re.split(r"^## ", TEXT.partition(f"\n## {section}\n")[2], flags=re.MULTILINE)[0]
    for line in body.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_lists_exactly_the_exported_metrics_with_types_and_labels():
    sections = ("Replica sets and pools", "What is done to VMs", "The controller", "The process")
    documented = [row for section in sections for row in rows(section)]
    assert all(row[3] for row in documented)
    wanted = [[f"`{name}`", metric.type, ", ".join(metric.labels)] for name, metric in exported().items()]
    assert sorted(row[:3] for row in documented) == sorted(wanted)


def test_the_page_lists_every_alert_with_its_severity():
    alerts = {rule["alert"]: rule["labels"]["severity"] for rule in rules("alerts")}
    assert {row[0].strip("`"): row[1] for row in rows("Alerts")} == alerts
    assert all(row[2] and row[3] for row in rows("Alerts"))


def test_the_page_lists_every_recording_rule():
    assert [row[0].strip("`") for row in rows("Recording rules")] == [rule["record"] for rule in rules("recordings")]


def test_the_page_has_the_time_limits_of_the_program():
    assert (ALLOWED_FOR_S, DENIED_FOR_S, ALLOWED_AT_MOST_S) == (60, 10, 300)
    assert "a permission for a minute, and a denial for ten seconds" in TEXT
    assert "up to five minutes" in TEXT
