"""docs/runbook.md has a section for each alert, and its commands exist."""

import re
from pathlib import Path
from typing import Final

import click
import pytest

from controller.cli import vmherd
from plugin.cli import plugin
from tests.monitoring.queries import rule_groups

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "runbook.md").read_text()
PARTS: Final = ("Meaning", "Impact", "Diagnosis", "Mitigation")


def sections() -> dict[str, str]:
    """The text of each section, by its anchor in rendered Markdown."""
    parts = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)
    return {heading.lower(): body for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


ALERTS = [[rule["alert"] for rule in group["rules"]] for group in rule_groups("alerts")]
"""The alerts of each group."""


def commands() -> list[str]:
    return [line.removeprefix("$ ").rstrip(" &") for line in TEXT.splitlines() if line.startswith("$ ")]


def test_each_alert_has_an_anchor_and_each_anchor_is_an_alert() -> None:
    assert list(sections()) == [name.lower() for names in ALERTS for name in names]


def test_the_contents_list_the_alerts_of_each_group() -> None:
    lists = re.findall(r"^About .+:\n\n((?:- .+\n)+)", TEXT, re.MULTILINE)
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
