"""Runs the controller that a case measures: vmherd, or a shell command."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sandbox.processes import Child, Spawner

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def cpu_s(pid: int) -> float:
    """Return the user and system CPU time of the tree in seconds. Children that have ended are included."""
    return sum(sum(map(int, fields[11:15])) for fields in _tree(pid)) / TICKS


def rss_mb(pid: int) -> float:
    """Return the resident memory of the tree in MB. Shared pages count once for each process."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(int(fields[21]) for fields in _tree(pid)) * page / 1e6


def cpu_of_machine_s() -> float:
    user, nice, system, *_ = map(int, (PROC / "stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system) / TICKS


def _tree(root: int) -> Iterator[list[str]]:
    """Yield the fields of /proc/PID/stat after the name, for the process and all its descendants."""
    children: dict[int, list[int]] = {}
    found: dict[int, list[str]] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        found[int(entry.name)] = fields
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in found:
            yield found[pid]
        waiting += children.get(pid, [])


STOPPED_WITHIN_S = 60.0
SYNC_TIMEOUT = "30m"
"""The longest time for the first lists. A busy machine may need so much."""


class Running:
    """A running program. Its figures are those of its process and all children of this process."""

    def __init__(self, child: Child) -> None:
        self.pid = child.pid
        self._child = child

    @property
    def cpu_s(self) -> float:
        self._check()
        return cpu_s(self.pid)

    @property
    def rss_mb(self) -> float:
        self._check()
        return rss_mb(self.pid)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait_for(self, text: str, *, within_s: float) -> None:
        """Wait until the log contains the text. Raise RuntimeError if the program ends."""

        def is_logged() -> bool:
            self._check()
            return text in self._child.log.read_text()

        wait_until(is_logged, f"the log has {text!r}", within_s=within_s)

    def _check(self) -> None:
        if not self._child.running:
            raise RuntimeError(f"the program ended:\n{self._child.log_tail(30)}")


def running_controller(
    kubeconfig: Path, log: Path, *, against: str = "", stalls: Path | None = None
) -> AbstractContextManager[Running]:
    """Run vmherd, with `stalls` in `benchmarks.watched`, or the shell command `against`."""
    if against:
        return running_process(["/usr/bin/env", f"KUBECONFIG={kubeconfig}", "sh", "-c", against], log)
    program = ["benchmarks.watched", str(stalls)] if stalls else ["controller"]
    command = [sys.executable, "-m", *program, "run", "--kubeconfig", str(kubeconfig), "--log-format", "json"]
    command += ["--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--sync-timeout", SYNC_TIMEOUT]
    return running_process(command, log)


@contextmanager
def running_process(command: Sequence[str], log: Path) -> Iterator[Running]:
    log.unlink(missing_ok=True)
    spawner = Spawner()
    child = spawner.start(log.stem, command, log)
    try:
        yield Running(child)
    finally:
        child.stop(grace_s=STOPPED_WITHIN_S)
        spawner.close()


def wait_until(reached: Callable[[], object], what: str, *, within_s: float, poll_s: float = 0.05) -> None:
    """Call a function until its answer is true. Raises RuntimeError."""
    deadline = time.monotonic() + within_s
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"this did not happen within {within_s:g} s: {what}")
        time.sleep(poll_s)
