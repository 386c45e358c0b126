"""Completion through kubectl's protocol: commands, flags, values and names, and how quick it is."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from controller.kubevirt.resources import CONTROLLER_REVISIONS
from informers.errors import Unauthorized
from plugin.cli import plugin, rollout
from plugin.completion import main
from plugin.verbs import ARGUMENTS, FLAGS, VERBS
from tests import pool_builders
from tests.plugin import states
from tests.plugin.cluster import Cluster, Shell

ROOT = Path(__file__).resolve().parents[2]
SLOW = {"aiohttp", "asyncio", "kubernetes_asyncio", "rich", "yaml", "controller.runtime.execute.executor"}


def complete(capsys: pytest.CaptureFixture[str], line: str) -> tuple[list[str], str]:
    """The completed words without their descriptions, and the directive for kubectl in the last line. The last word of
    `line` is the incomplete word.
    """
    assert main(line.split(" ")) == 0
    out, err = capsys.readouterr()
    *words, directive = out.splitlines()
    assert err == ""
    return [word.partition("\t")[0] for word in words], directive


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ro", ["rollout"]),
        ("rollout re", ["restart", "resume"]),
        ("-n shop rollout pa", ["pause"]),
        ("rollout status --w", ["--watch"]),
        ("rollout status vmpool/web --req", ["--request-timeout"]),
        ("list --all", ["--all-namespaces"]),
        ("scale --dry-run ", ["none", "server", "client"]),
        ("scale --dry-run=c", ["client"]),
        ("rollout status --watch=", ["true", "false"]),
        ("tree -o j", ["json"]),
        ("tree --selector app=", []),
    ],
)
def test_commands_flags_and_values_are_completed(capsys: pytest.CaptureFixture[str], line: str, words: list[str]):
    assert complete(capsys, line) == (words, ":4")


def test_every_command_has_a_description(capsys: pytest.CaptureFixture[str]):
    assert main([""]) == 0
    *lines, _ = capsys.readouterr().out.splitlines()
    assert [line.partition("\t")[0] for line in lines] == [name for name in plugin.commands if name != "help"]
    assert [line for line in lines if not line.partition("\t")[2]] == []


def test_a_type_is_completed_without_a_space(capsys: pytest.CaptureFixture[str]):
    assert complete(capsys, "plan vm") == (["vmpool/", "vmirs/"], ":6")
    assert complete(capsys, "tree vm") == (["vmpool/", "vmirs/", "vm/"], ":6")
    assert complete(capsys, "protect ") == (["vm/", "vmi/"], ":6")
    assert complete(capsys, "adopt vm") == (["vm/", "vmi/"], ":6")
    assert complete(capsys, "adopt vmi/a --to vm") == (["vmpool/", "vmirs/"], ":6")


def test_names_are_read_from_the_cluster_with_their_state(cluster: Cluster, capsys: pytest.CaptureFixture[str]):
    states.pool_at_rest(cluster)
    states.replica_set(cluster, updated=1)
    states.change_pool(cluster, status={"printableStatus": "Running", "replicas": 2, "readyReplicas": 1})
    assert main(["tree", "vmpool/w"]) == 0
    assert capsys.readouterr().out == "vmpool/web\tRunning 1/2 ready\n:4\n"
    assert complete(capsys, "rollout status vmirs ") == (["testreplicaset"], ":4")
    assert complete(capsys, "rollout status vmirs testreplicaset ") == ([], ":4")
    assert complete(capsys, "protect vm/web-") == (["vm/web-0", "vm/web-1"], ":4")
    assert complete(capsys, "adopt vmi/te") == (["vmi/test0"], ":4")


def test_a_revision_is_one_of_the_named_object(cluster: Cluster, capsys: pytest.CaptureFixture[str]):
    states.pool_at_rest(cluster)
    other = pool_builders.pool("other", uid="uid-other")
    cluster.put(CONTROLLER_REVISIONS, pool_builders.revision(other, "other-7", number=7))
    for named in ("vmpool/web", "vmpool web"):
        assert complete(capsys, f"rollout undo {named} --to-revision ") == (["1", "2"], ":4")
    assert complete(capsys, "rollout undo --to-revision ") == ([], ":4")


def test_an_error_gives_no_completions_and_no_message(cluster: Cluster, capsys: pytest.CaptureFixture[str]):
    cluster.answer_with(Unauthorized("Unauthorized", code=401, reason="Unauthorized"))
    assert complete(capsys, "tree vmpool/") == ([], ":4")


def test_completion_knows_the_flags_of_every_command():
    own = {name for name, each in plugin.commands.items() if getattr(each, "module", "").startswith("plugin.")}
    verbs = own | {f"rollout {name}" for name in rollout.commands}
    assert verbs == FLAGS.keys() | {"cleanup", "options"} == VERBS.keys()
    assert verbs - {"cleanup", "options", "takeover", "ui", "version"} == ARGUMENTS.keys()


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_has_an_example_that_is_right(shell: Shell, verb: str):
    assert f"kubectl vmherd {verb} {VERBS[verb].example}".rstrip() in " ".join(shell.output(f"{verb} --help").split())
    words = shlex.split(f"{verb} {VERBS[verb].example}")
    command: Any = plugin
    for name in verb.split():
        command = command.commands[name]
    command.load().make_context(verb, words[len(verb.split()) :])


@pytest.mark.parametrize("verb", sorted({*FLAGS, "cleanup"}))
def test_completion_offers_exactly_the_flags_that_a_command_accepts(capsys: pytest.CaptureFixture[str], verb: str):
    command: Any = plugin
    for word in verb.split():
        command = command.commands[word]
    accepted = {max(each.opts, key=len) for each in command.load().params if isinstance(each, click.Option)}
    words, directive = complete(capsys, f"{verb} --")
    assert (set(words), directive) == (accepted, ":4")


@pytest.mark.parametrize("words", [["rollout", "status", "--w"], ["ro"], ["tree", "vmp"]])
def test_completion_of_commands_and_flags_imports_nothing_slow(words: list[str]):
    code = f"import sys; from plugin.completion import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert SLOW & set(done.stderr.split()) == set()
