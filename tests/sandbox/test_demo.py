"""`vmherd demo` as a command, with and without a terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.demo_steps import BREAK, UPDATE
from sandbox.kubectl import run_kubectl
from tests.sandbox.patience import processes_about, wait_for

DEMO = [sys.executable, "-m", "controller", "demo"]
ON_A_TERMINAL = "import os, sys; os.login_tty(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
WITHIN_S = 100.0
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3 * WITHIN_S)]
CTRL_C = b"\x03"

ALL_SET = "vmirs/testreplicaset +3 +3 +3 +3 "
ALL_WELL = "vmpool/vm-pool-web +4 +4 +4 +4 +Running"

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A demo on a terminal of the test. The demo keeps its temporary files in a directory of the test."""

    def __init__(self, directory: Path) -> None:
        self._ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (50, 120))
        command = [sys.executable, "-c", ON_A_TERMINAL, str(theirs), *DEMO]
        # Under nohup, the demo would inherit an ignored SIGHUP.
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        environment = {**os.environ, "TMPDIR": str(directory), "TERM": "xterm"}
        self.process = subprocess.Popen(command, pass_fds=[theirs], env=environment)
        signal.signal(signal.SIGHUP, before)
        os.close(theirs)
        self.seen = ""

    def reads(self, *patterns: str) -> None:
        """Wait until the screen has shown these patterns, in this order. Fails the test after a timeout."""
        give_up = time.monotonic() + WITHIN_S
        for pattern in patterns:
            while (found := re.search(pattern, self.seen)) is None:
                if time.monotonic() > give_up or not self.read():
                    pytest.fail(f"no {pattern!r} on the terminal, but:\n{self.seen[-4000:]}")
            self.seen = self.seen[found.end() :]

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def end(self) -> int:
        while self.read():
            pass
        return self.process.wait(WITHIN_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    def read(self, *, within_s: float = 1.0) -> bool:
        """Wait at most `within_s` seconds for output, and read it. Return False only at the end of the output."""
        if not select.select([self._ours], [], [], within_s)[0]:
            return True
        try:
            self.seen += ESCAPES.sub("", os.read(self._ours, 65536).decode(errors="replace"))
        except OSError:
            return False  # on Linux: no process has the other end open
        return True


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_without_a_terminal_the_error_says_at_once_what_to_do() -> None:
    done = subprocess.run(DEMO, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "vmherd: demo: the output is not a terminal: use `vmherd demo --once`\n"


@pytest.fixture(scope="module")
def once(control_plane_binaries: object, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a successful `vmherd demo --once`. The command must leave no files behind."""
    directory = tmp_path_factory.mktemp("once")
    done = subprocess.run(
        [*DEMO, "--once"],
        env={**os.environ, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(directory.iterdir()) == []
    assert processes_about(directory) == []
    return done.stdout


@pytest.mark.cluster
def test_once_scales_a_replica_set_out_and_in(once: str) -> None:
    ready = re.findall(r"^(\d) of \d ready after", once, re.MULTILINE)
    assert ready == ["3", "5", "2"]


@pytest.mark.cluster
def test_once_updates_a_pool_one_vm_at_a_time(once: str) -> None:
    steps = re.findall(r"^updated (\d) of 4, ready (\d) of 4$", once, re.MULTILINE)
    assert {ready for _, ready in steps} == {"3", "4"}
    assert [int(updated) for updated, _ in steps] == sorted(int(updated) for updated, _ in steps)
    assert steps[-1] == ("4", "4")
    assert "at most 1 of 4 unavailable\n" in once


@pytest.mark.cluster
def test_once_shows_that_a_failing_vm_is_replaced_under_its_name(once: str) -> None:
    uids = re.findall(r"^vm-pool-web-1 (\S{36}): ", once, re.MULTILINE)
    assert len(set(uids)) == 2
    assert "Deleted VM default/vm-pool-web-1: healing: it failed to start 3 times in a row, the limit is 3; " in once


@pytest.mark.cluster
def test_once_prints_the_output_of_kubectl_for_the_pool(once: str) -> None:
    assert once.count("$ kubectl get vmpool,vm\n") == 2
    assert re.search(r"^virtualmachinepool\S*/vm-pool-web +4 +4 +4 ", once, re.MULTILINE)
    assert "$ kubectl describe vmpool vm-pool-web\n" in once
    assert re.search(r"^ +Printable Status: +Running$", once, re.MULTILINE)


@pytest.mark.cluster
@pytest.mark.usefixtures("control_plane_binaries")
def test_on_a_terminal_the_demo_shows_the_effect_of_pasted_lines_until_ctrl_c(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.reads("export KUBECONFIG=", ALL_SET, ALL_WELL)
    [kubeconfig] = tmp_path.glob("vmherd-demo-*/kubeconfig")
    run_kubectl(kubeconfig, *UPDATE)
    terminal.reads("Updating", ALL_WELL)
    for command in BREAK:
        run_kubectl(kubeconfig, *command)
    terminal.reads("CrashLoopBackOff", "Healing", ALL_WELL)
    terminal.press(CTRL_C)
    assert terminal.end() == 0
    wait_for(lambda: not processes_about(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
@pytest.mark.usefixtures("control_plane_binaries")
def test_pressing_ctrl_c_repeatedly_leaves_nothing_behind(terminal: Terminal, tmp_path: Path) -> None:
    terminal.reads(ALL_SET)

    def ends() -> bool:
        terminal.press(CTRL_C)
        terminal.read(within_s=0.0)
        return terminal.process.poll() is not None

    wait_for(ends)
    assert terminal.end() == 0
    wait_for(lambda: not processes_about(tmp_path))
    assert list(tmp_path.iterdir()) == []
