"""The page of the plugin: each command on it exists, with its flags. The keys for k9s in docs/integrations."""

import re
import shlex
from typing import Any

import click
import pytest
import yaml

from controller.cli import LazyCommand
from controller.kinds import KINDS
from plugin.cli import plugin, rollout
from plugin.members import parse_members
from plugin.subjects import parse_subjects
from plugin.verbs import ARGUMENTS, MEMBERS, VERBS
from tests.pages.session import ROOT
from tests.plugin import states
from tests.plugin.cluster import Cluster, Shell

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


KEYS = yaml.safe_load((ROOT / "docs/integrations/k9s.yaml").read_text())["plugins"]
SELECTED = {"RESOURCE_NAME": "virtualmachinepools", "RESOURCE_GROUP": "pool.kubevirt.io", "NAME": "web"}
PLACE = {"NAMESPACE": "default", "CONTEXT": "any"}

VARIABLE = re.compile(r"\$(!?[\w|-]+)")
"""What k9s replaces in an argument. A name may have a `|` for k9s, so a pipe needs a space before it."""

FIELDS = {"shortCut", "description", "scopes", "command", "args", "background", "confirm", "dangerous"}
SAID = {"vmherd-tree": "|- vm/web-0", "vmherd-why": "vmpool/web wants 2", "vmherd-resume": '"web" is not paused'}


@pytest.mark.parametrize("name", KEYS)
def test_each_key_of_k9s_runs_a_command_on_the_selected_object(cluster: Cluster, shell: Shell, name: str):
    key: dict[str, Any] = KEYS[name]
    assert key.keys() <= FIELDS
    assert set(key["scopes"]) == {kind.plural for kind in KINDS}
    words = VARIABLE.sub(lambda found: {**SELECTED, **PLACE}[found[1]], " ".join(key["args"]))
    line = words.replace("-c kubectl ", "").removeprefix("vmherd ").partition(" 2>&1 |")[0].replace('"', "")
    assert line.endswith(" --context any")
    states.pool_at_rest(cluster)
    _, out, err = shell(line.replace(" --watch", ""))
    assert SAID[name] in out + err


def test_no_two_keys_of_k9s_are_the_same():
    assert len({key["shortCut"] for key in KEYS.values()}) == len(KEYS)
