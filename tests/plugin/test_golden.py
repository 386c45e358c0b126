"""The output of commands as files in `golden`: the state of each pool and set, and scenes of several commands.

Lines of stderr begin with `! `, and requests that write begin with `> `. A scene runs the commands in its
file. The command `GOLDEN=write pytest tests/plugin/test_golden.py` writes the output again: read the difference before
you commit it.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.plugin import states
from tests.plugin.cluster import Cluster, Shell
from tests.plugin.scenes import SCENES

GOLDEN = Path(__file__).with_name("golden")
COMMANDS = 501
"""The number of commands in all golden files. A scene reads its commands from its file, so none may get lost there."""

LOOKING = ("tree {}", "why {}", "rollout status {} --watch=false")


def transcript(shell: Shell, *lines: str) -> str:
    """The commands with their output, with the writes, and with the exit code if it is not 0."""
    text = ""
    for line in lines:
        before = len(shell.cluster.writes)
        code, out, err = shell(line)
        errors = "".join(f"! {each}\n" for each in err.splitlines())
        writes = "".join(f"> {written(*each)}\n" for each in shell.cluster.writes[before:])
        text += f"$ kubectl vmherd {line}\n{out}{errors}{writes}" + (f"[exit code {code}]\n" if code else "") + "\n"
    return text


def written(method: str, path: str, params: Mapping[str, str], body: object) -> str:
    query = "&".join(f"{name}={value}" for name, value in params.items())
    return f"{method} {path}?{query} {msgspec.json.encode(body, order='sorted').decode()}"


def replay(name: str, shell: Shell) -> None:
    """Run the commands in a file, and compare their output with the file."""
    lines = re.findall(r"^\$ kubectl vmherd (.*)$", (GOLDEN / f"{name}.txt").read_text(), re.MULTILINE)
    assert lines
    compare(name, transcript(shell, *lines))


def compare(name: str, text: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", states.STATES)
def test_each_state_is_shown_and_explained(cluster: Cluster, shell: Shell, name: str):
    state, named = states.STATES[name]
    states.lease(cluster)
    state(cluster)
    compare(name, transcript(shell, *(line.format(named) for line in LOOKING)))


def test_no_scene_and_no_command_is_lost():
    texts = {each.stem: each.read_text() for each in GOLDEN.iterdir()}
    assert {name for name in texts if name.startswith("scene-")} == {f"scene-{name}" for name in SCENES}
    assert sum(text.count("$ kubectl vmherd ") for text in texts.values()) == COMMANDS


def test_wrong_words(cluster: Cluster, shell: Shell):
    states.pool_rollout(cluster)
    replay("wrong-words", shell)


LOOKS = ("list", *(line.format("vmpool/web") for line in LOOKING), "plan vmpool/web", "rollout history vmpool/web")


@pytest.mark.parametrize(
    "plural", ["virtualmachines", "virtualmachineinstances", "controllerrevisions", "leases", "virtualmachinepools"]
)
def test_few_permissions(cluster: Cluster, shell: Shell, plural: str):
    states.lease(cluster)
    states.pool_rollout(cluster)
    status = {"replicas": 4, "readyReplicas": 3, "updatedReplicas": 2, "printableStatus": "Updating"}
    states.change_pool(cluster, status={**status, "currentRevision": "web-2", "updateRevision": "web-3"})
    cluster.forbidden = {plural}
    compare(f"without-{plural}", transcript(shell, *LOOKS))


def test_no_cluster(capsys: pytest.CaptureFixture[str]):
    shell = Shell(Cluster(), capsys)
    there = " --server=http://127.0.0.1:1"
    lines = ("list", "tree vmpool/web", "scale vmpool/web --replicas=1", "protect vm/web-0", "version")
    text = transcript(shell, *(line + there for line in lines)).replace(there, "")
    compare("no-cluster", re.sub(r"vmherd \S+ \(Python [\d.]+\)", "vmherd <version> (Python <version>)", text))


def test_no_leader(cluster: Cluster, shell: Shell):
    states.pool_rollout(cluster)
    without = transcript(shell, "why vmpool/web")
    states.lease(cluster, renewed_s=600)
    compare("no-leader", without + transcript(shell, "why vmpool/web"))


@pytest.mark.parametrize("kind", ["pool", "set"])
def test_behind_kubevirts_own_controller(cluster: Cluster, shell: Shell, kind: str):
    states.lease(cluster)
    cluster.install_kubevirt()
    state, named = states.STATES[f"{kind}-rollout"]
    state(cluster)
    compare(f"behind-kubevirt-{kind}", transcript(shell, "list", *(line.format(named) for line in LOOKING)))


@pytest.mark.parametrize("colours", [True, False])
def test_a_terminal(cluster: Cluster, shell: Shell, terminal: None, monkeypatch: pytest.MonkeyPatch, colours: bool):
    """A terminal of 80 columns. In the file with colours, `ESC` stands for the escape character."""
    monkeypatch.setenv("NO_COLOR", "" if colours else "1")
    states.lease(cluster)
    states.pool_quota(cluster)
    lines = ("list", "tree vmpool/web", "tree vmpool/web -o wide", "why vmpool/web", "tree vmpool -A", "why vmpool -A")
    text = transcript(shell, *lines)
    assert ("\x1b" in text) is colours
    compare("terminal" if colours else "terminal-without-colours", text.replace("\x1b", "ESC"))


def test_names_for_scripts(cluster: Cluster, shell: Shell):
    states.lease(cluster)
    states.pool_rollout(cluster)
    states.set_rollout(cluster)
    replay("names", shell)


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene(cluster: Cluster, shell: Shell, scene: str):
    SCENES[scene](cluster)
    replay(f"scene-{scene}", shell)


VIEWS = ("list", "tree {}", "why {}", "plan {}", "rollout history {}", "rollout status {} --watch=false")
HEADERS = {"NAME", "REVISION"}
AGE = re.compile(r"\d+[smhd](\d+[smhd])?|<unknown>")
MARKS = {"*", "-", "<none>", "True", "False", "nothing", "rolled back"}
TOPIC = re.compile(r"^(?:  (?:\w+ +)?|event |held: |vm\w*/)")
COUNTS = re.compile(r"(?:(\w+) )?(\d+)/(\d+)|(\w+)->(\w+)")


def facts(text: str) -> Iterator[str]:
    """The cells and texts of an output, without what it is made of: headers, branches, topics and ages."""
    for line in text.splitlines():
        if (line.split() and line.split()[0] in HEADERS) or (line.startswith("virtualmachine") and ": " not in line):
            continue
        for cell in re.split(r" {2,}", line.removeprefix("|- ").removeprefix("`- ")):
            said = TOPIC.sub("", re.sub(r"^[\w.]+/[\w.-]+: ", "", cell)).strip()
            counts = COUNTS.fullmatch(said)
            for each in filter(None, counts.groups()) if counts else [said]:
                if each and each not in MARKS and not AGE.fullmatch(each):
                    yield each


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    else:
        yield str(value)


@pytest.mark.parametrize(("state", "named"), states.STATES.values(), ids=states.STATES)
def test_every_fact_of_the_text_is_in_the_data(cluster: Cluster, shell: Shell, state: states.State, named: str):
    states.lease(cluster)
    state(cluster)
    for view in VIEWS:
        line = view.format(named)
        code, text, _ = shell(line)
        told, data, _ = shell(f"{line} -o json")
        assert told == code
        known = " | ".join((named, *leaves(json.loads(data) if data else "")))
        assert [each for each in facts(text) if each not in known] == [], line
