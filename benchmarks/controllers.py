"""Runs the controller that a case measures: vmherd, or a shell command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import process_tree

STOPPED_WITHIN_S = 60.0
SYNC_TIMEOUT = "30m"
"""The longest time for the first lists. A busy machine may need so much."""


class Running:
    """A running controller. Its figures are those of its process and all children of this process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._log = log

    @property
    def cpu_s(self) -> float:
        self._check()
        return process_tree.cpu_s(self.pid)

    @property
    def rss_mb(self) -> float:
        self._check()
        return process_tree.rss_mb(self.pid)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_for(self, text: str, *, within_s: float) -> None:
        """Wait until the log contains the text. Raise RuntimeError if the controller ends."""
        deadline = time.monotonic() + within_s
        while text not in self._log.read_text():
            self._check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the controller did not log {text!r} within {within_s:g} s")
            time.sleep(0.05)

    def _check(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the controller ended:\n{self._log.read_text()[-3000:]}")


@contextmanager
def running_controller(
    kubeconfig: Path, log: Path, *, against: str = "", watched: Sequence[str] = ()
) -> Iterator[Running]:
    """Start the controller, and stop it at the end of the block.

    `against` is a shell command for another controller. The command finds the kubeconfig in the environment variable
    KUBECONFIG. `watched` are arguments of `benchmarks.watched`.
    """
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = ["sh", "-c", against] if against else _vmherd(kubeconfig, watched)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        yield Running(process, log)
    finally:
        _stop(process)


def _vmherd(kubeconfig: Path, watched: Sequence[str]) -> list[str]:
    program = ["benchmarks.watched", *watched, "--"] if watched else ["controller"]
    flags = ["--log-format", "json", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"]
    flags += ["--sync-timeout", SYNC_TIMEOUT]
    return [sys.executable, "-m", *program, "run", "--kubeconfig", str(kubeconfig), *flags]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the process and its children, which are one process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            continue
        break
