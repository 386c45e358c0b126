"""Keys start experiments. Experiments run one after the other, and their errors are one line."""

import os
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sandbox.demo import runner as module
from sandbox.demo.command import Keyboard, keyboard, keys_in
from sandbox.demo.experiments import Command, Experiment
from sandbox.demo.hints import Report
from sandbox.demo.runner import Runner, environment, one_line
from tests.controlplane.waits import eventually


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of these tests are lines for the shell."""
    monkeypatch.setattr(module, "as_process", lambda command: ["/bin/sh", "-c", command[0]])


def experiment(name: str, *lines: str) -> Experiment:
    commands: tuple[Command, ...] = tuple((line,) for line in lines)
    return Experiment(name[0], name, "try it", commands)


@contextmanager
def running(directory: Path) -> Iterator[Runner]:
    with closing(Runner(directory / "kubeconfig")) as runner:
        yield runner


def finished(runner: Runner, line: str) -> Report:
    eventually(lambda: runner.report.line == line and not runner.report.running)
    return runner.report


def test_a_failure_is_one_line_and_ends_the_experiment(tmp_path: Path) -> None:
    with running(tmp_path) as runner:
        runner.press(
            experiment("1", "echo usage >&2; echo 'Error: no such pool' >&2; exit 1", f"touch {tmp_path}/later")
        )
        assert finished(runner, "1 1 failed").error == "Error: no such pool"
        runner.press(experiment("2", "exit 3"))
        assert finished(runner, "2 2 failed").error == "exit 3 exited with code 3"
    assert not (tmp_path / "later").exists()


def test_experiments_wait_for_the_one_that_runs_and_each_waits_once(tmp_path: Path) -> None:
    held = tmp_path / "held"
    with running(tmp_path) as runner:
        runner.press(experiment("1", f"while ! test -e {held}; do sleep 0.05; done"))
        eventually(lambda: runner.report.commands)
        second = experiment("2", f"echo two >> {tmp_path}/out")
        for _ in range(3):
            runner.press(second)
        assert runner.report.waiting == ("2 2",)
        held.touch()
        finished(runner, "2: try it")
    assert (tmp_path / "out").read_text() == "two\n"


def test_the_end_of_the_demo_ends_the_command_that_runs(tmp_path: Path) -> None:
    with running(tmp_path) as runner:
        runner.press(experiment("1", "exec sleep 600", f"touch {tmp_path}/later"))
        eventually(lambda: runner._process is not None)
        process = runner._process
    assert process is not None
    assert process.poll() is not None
    assert not [each for each in threading.enumerate() if each.name.startswith("experiments")]
    assert not (tmp_path / "later").exists()


def test_commands_get_the_kubeconfig_and_leave_their_files_in_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://example.com:3128")
    found = environment(tmp_path / "kubeconfig")
    assert (found["KUBECONFIG"], found["TMPDIR"]) == (str(tmp_path / "kubeconfig"), str(tmp_path))
    assert "HTTPS_PROXY" not in found


def test_of_an_output_only_the_last_line_counts() -> None:
    assert one_line("usage: kubectl\n\n  error: no pool  \n\n") == "error: no pool"
    assert one_line("\n") == ""


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1", "1"),
        ("17", "17"),
        ("Q", "q"),
        ("\x1b[A\x1b[1;5C\x1bOP7", "7"),  # arrow keys and F1
        ("\x1b", ""),
        ("kubectl scale vmirs testreplicaset --replicas 5\n", ""),
    ],
)
def test_only_keys_of_characters_count_and_a_pasted_text_has_no_keys(text: str, keys: str) -> None:
    assert keys_in(text) == keys


def test_the_end_of_the_terminal_is_noticed() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"5")
    os.close(theirs)
    keys = Keyboard(ours)
    assert (keys.read(None), keys.is_open) == ("5", True)
    assert (keys.read(None), keys.is_open) == ("", False)
    os.close(ours)


def test_keys_need_no_enter_and_the_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    with open(theirs, closefd=False) as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", terminal)
        with keyboard() as keys:
            os.write(ours, b"3\x1a")  # Ctrl-Z is an ordinary key
            assert keys.read(None) == "3\x1a"
            assert not termios.tcgetattr(theirs)[3] & termios.ECHO
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
