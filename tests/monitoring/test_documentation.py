"""docs/metrics.md lists exactly the metrics and alerts that exist.

docs/runbook.md has a section for each alert, and its commands exist.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from controller.cli import vmherd
from controller.server.authorization import ALLOWED_AT_MOST_S, ALLOWED_FOR_S, DENIED_FOR_S
from plugin.cli import plugin
from tests.metrics_page import exported
from tests.monitoring.queries import rule_groups, rules

ROOT = Path(__file__).resolve().parents[2]
METRICS, RUNBOOK = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("metrics", "runbook"))


def rows(section: str) -> Iterator[list[str]]:
    """The cells of the table rows below a heading, without the header rows."""
    body = re.split(r"^## ", METRICS.partition(f"\n## {section}\n")[2], flags=re.MULTILINE)[0]
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
    assert "a permission for a minute, and a denial for ten seconds" in METRICS
    assert "up to five minutes" in METRICS


PARTS: Final = ("Meaning", "Impact", "Diagnosis", "Mitigation")


def sections() -> dict[str, str]:
    """The text of each section, by its anchor in rendered Markdown."""
    parts = re.split(r"^## (.+)$", RUNBOOK, flags=re.MULTILINE)
    return {heading.lower(): body for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


ALERTS = [[rule["alert"] for rule in group["rules"]] for group in rule_groups("alerts")]
"""The alerts of each group."""


def commands() -> list[str]:
    return [line.removeprefix("$ ").rstrip(" &") for line in RUNBOOK.splitlines() if line.startswith("$ ")]


def test_each_alert_has_an_anchor_and_each_anchor_is_an_alert() -> None:
    assert list(sections()) == [name.lower() for names in ALERTS for name in names]


def test_the_contents_list_the_alerts_of_each_group() -> None:
    lists = re.findall(r"^About .+:\n\n((?:- .+\n)+)", RUNBOOK, re.MULTILINE)
    wanted = ["".join(f"- [{name}](#{name.lower()})\n" for name in names) for names in ALERTS]
    assert lists == wanted


@pytest.mark.parametrize("anchor", sections())
def test_a_section_has_all_parts_and_a_command_for_the_diagnosis(anchor: str) -> None:
    body = sections()[anchor]
    assert tuple(re.findall(r"^\*\*(\w+)\.\*\*", body, re.MULTILINE)) == PARTS
    assert "$ " in body.partition("**Diagnosis.**")[2].partition("**Mitigation.**")[0]


def test_each_command_of_vmherd_and_of_the_plugin_exists_with_its_flags() -> None:
    ours = [each for each in commands() if each.startswith(("kubectl vmherd ", "vmherd "))]
    assert len(ours) > 10
    for text in ours:
        words = text.removeprefix("kubectl ").split()[1:]
        group: click.Command = plugin if text.startswith("kubectl ") else vmherd
        while isinstance(group, click.Group):
            group = group.commands[words.pop(0)]
        command = getattr(group, "load", lambda found=group: found)()
        known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known, text


def test_the_commands_use_only_programs_that_an_operator_has() -> None:
    assert {each.split()[0] for each in commands()} == {"kubectl", "vmherd", "curl"}
