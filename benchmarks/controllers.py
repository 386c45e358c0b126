"""Runs the controller that a case measures: vmherd, or a shell command."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from benchmarks import process_tree

T = TypeVar("T")

STOPPED_WITHIN_S = 60.0
SYNC_TIMEOUT = "30m"
"""The longest time for the first lists. A busy machine may need so much."""


class Running:
    """A running program. Its figures are those of its process and all children of this process."""

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

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_for(self, text: str, *, within_s: float) -> None:
        """Wait until the log contains the text. Raise RuntimeError if the program ends."""

        def is_logged() -> bool:
            self._check()
            return text in self._log.read_text()

        wait_until(is_logged, f"the log has {text!r}", within_s=within_s)

    def _check(self) -> None:
        if self.has_ended:
            raise RuntimeError(f"the program ended:\n{self._log.read_text()[-3000:]}")


@contextmanager
def running_controller(
    kubeconfig: Path, log: Path, *, against: str = "", stalls: Path | None = None, flags: Sequence[str] = ()
) -> Iterator[Running]:
    """Start the controller, and stop it at the end of the block.

    `against` is a shell command for another controller. The command finds the kubeconfig in the environment variable
    KUBECONFIG. With `stalls`, vmherd runs in `benchmarks.watched`. `flags` are flags of `vmherd run`.
    """
    command = ["sh", "-c", against] if against else [*_vmherd(kubeconfig, stalls), *flags]
    with running_process(command, log, KUBECONFIG=str(kubeconfig)) as running:
        yield running


@contextmanager
def running_process(command: Sequence[str], log: Path, **environment: str) -> Iterator[Running]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True
        )
    try:
        yield Running(process, log)
    finally:
        _stop(process)


def wait_until(reached: Callable[[], T], what: str, *, within_s: float, poll_s: float = 0.05) -> T:
    """Call a function until its answer is true, and return the answer. Raises RuntimeError."""
    deadline = time.monotonic() + within_s
    while not (answer := reached()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"this did not happen within {within_s:g} s: {what}")
        time.sleep(poll_s)
    return answer


def _vmherd(kubeconfig: Path, stalls: Path | None) -> list[str]:
    program = ["benchmarks.watched", str(stalls)] if stalls else ["controller"]
    flags = ["--log-format", "json", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"]
    flags += ["--sync-timeout", SYNC_TIMEOUT]
    return [sys.executable, "-m", *program, "run", "--kubeconfig", str(kubeconfig), *flags]


def _stop(process: subprocess.Popen[bytes]) -> None:
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
