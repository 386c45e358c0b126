"""Runs the commands of a page in one shell, as a reader of the page does.

The shell starts in a directory that has the files of the repository. It has a home directory of its own. The commands
run as they are written, with two exceptions. The ports 8080 and 8081 of the controller may be in use on the machine of
the test, so the controller gets other ports, and the commands that name these two ports get the other ports as well.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from sandbox.binaries import cache_directory
from tests.pages.commands import Step, words_of
from tests.pages.output import matches

ROOT = Path(__file__).resolve().parents[2]
REPEATED_FOR_S = 60.0
PAUSE_S = 0.3
STOPS_WITHIN_S = 1.0

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
"""The search path of a shell. The first directory has vmherd, kubectl and the plugin."""

LOOKING = (
    *(("kubectl", verb) for verb in ("get", "describe", "events", "wait")),
    *(("kubectl", "vmherd", verb) for verb in ("list", "tree", "why", "plan")),
    *(("kubectl", "vmherd", "rollout", "history"), ("curl",), ("grep",)),
)
"""The commands that change nothing. If the output is not yet that of the page, a reader repeats such a command."""


class Session:
    """A shell. Variables, directories and background jobs stay from step to step."""

    def __init__(self, shell: subprocess.Popen[str], directory: Path, ports: Mapping[str, str]) -> None:
        self._shell = shell
        self._directory = directory
        self._ports = ports

    def play(self, step: Step) -> None:
        """Run a step. If its exit code or its output is not that of the page, the test fails."""
        give_up = time.monotonic() + (REPEATED_FOR_S if is_looking(step.command) else 0.0)
        while True:
            code, seen = self.run(step.command)
            if code == step.code and (not step.output or matches(step.output, seen)):
                return
            if time.monotonic() > give_up:
                wanted = "\n".join(step.output)
                pytest.fail(
                    f"line {step.line}: $ {step.command}\nexit code {code}, output:\n{seen}\nthe page:\n{wanted}"
                )
            time.sleep(PAUSE_S)

    def run(self, command: str) -> tuple[int, str]:
        for port, used in self._ports.items():
            command = command.replace(f"localhost:{port}", f"localhost:{used}")
        script, output = self._directory / "step.sh", self._directory / "step.out"
        script.write_text(f"{command}\n")
        output.unlink(missing_ok=True)
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f". {script} < /dev/null > {output} 2>&1; echo $?\n")
        self._shell.stdin.flush()
        line = self._shell.stdout.readline()
        if not line:
            pytest.fail(f"the shell ended: $ {command}\n{output.read_text()}")
        return int(line), output.read_text()


def is_looking(command: str) -> bool:
    words = tuple(words_of(command))
    return any(words[: len(each)] == each for each in LOOKING)


class Ports(NamedTuple):
    """The ports of a controller on this machine."""

    metrics: int
    health: int


@contextmanager
def session(directory: Path, ports: Ports, variables: Mapping[str, str] | None = None) -> Iterator[Session]:
    """Open a shell for the block. At the end, stop its background jobs and its sandboxes.

    `ports` are the ports of the controller that the commands start, or of a controller that runs already.
    """
    home, files, own = directory / "home", directory / "vmherd", directory / "session"
    for each in (home, files, own):
        each.mkdir(parents=True)
    for path in ROOT.iterdir():
        (files / path.name).symlink_to(path)
    environment = {
        "PATH": PATH,
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "VMHERD_CACHE": str(cache_directory()),
        "VMHERD_METRICS_BIND_ADDRESS": f"127.0.0.1:{ports.metrics}",
        "VMHERD_HEALTH_PROBE_BIND_ADDRESS": f"127.0.0.1:{ports.health}",
        **(variables or {}),
    }
    shell = subprocess.Popen(
        ["bash", "--noprofile", "--norc"],
        cwd=files,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Session(shell, own, {"8080": str(ports.metrics), "8081": str(ports.health)})
    finally:
        _stop(shell)
        for state in home.glob("*/state.json"):
            down = ["-m", "controller", "sandbox", "down", "--dir", str(state.parent)]
            subprocess.run([sys.executable, *down], cwd=ROOT, timeout=60, check=False, capture_output=True)


def _stop(shell: subprocess.Popen[str]) -> None:
    """Stop the shell and its background jobs. They share a process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        give_up = time.monotonic() + STOPS_WITHIN_S
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, number)
        while _runs(shell.pid) and time.monotonic() < give_up:
            time.sleep(0.02)
    with shell:
        shell.wait(10)


def _runs(group: int) -> bool:
    """True if a process of the group has not ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of_group, *_ = path.read_text().rpartition(")")[2].split()
            if int(of_group) == group and state != "Z":
                return True
    return False
