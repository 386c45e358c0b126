"""The page of the plugin: each command on it exists, with its flags."""

import re
import shlex
from pathlib import Path

import click
import pytest

from controller.cli import LazyCommand
from plugin.cli import plugin, rollout
from plugin.members import parse_members
from plugin.subjects import parse_subjects
from plugin.verbs import ARGUMENTS, MEMBERS, VERBS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "plugin.md").read_text()
COMMANDS = sorted(set(re.findall(r"^\$ kubectl vmherd ([^#\n|]*)", PAGE, re.MULTILINE)))


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_of_the_page_is_accepted(line: str):
    group: click.Group = plugin
    words = shlex.split(line)
    if words == ["--help"]:
        return
    while True:
        command = group.commands[words.pop(0)]
        if not isinstance(command, click.Group):
            break
        group = command
    assert isinstance(command, LazyCommand)
    parsed = command.load().make_context(command.name, words)
    if parsed.params.get("arguments"):
        verb = f"rollout {command.name}" if group is rollout else command.name
        parse = parse_members if ARGUMENTS[verb or ""] == MEMBERS else parse_subjects
        assert parse(parsed.params["arguments"])


def test_the_answer_of_why_on_the_page_is_that_of_the_program():
    found = re.search(r"```\n(vmpool/web wants .*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] in (ROOT / "tests" / "plugin" / "golden" / "pool-rollout.txt").read_text()


def test_the_page_shows_every_verb():
    shown = {" ".join(line.split()[: 2 if line.startswith("rollout") else 1]) for line in COMMANDS}
    assert VERBS.keys() - shown == set()
