"""Runs the replay server as a process, and controls it."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import astuple

from benchmarks.controllers import running_process, wait_until
from benchmarks.fleet import Size
from sandbox.admin import Admin

READY_WITHIN_S = 1800.0
POLL_S = 0.1


class Replay:
    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.admin = Admin(kubeconfig)

    def ask(self, what: str, **params: float) -> Any:
        return self.admin.get(f"/replay/{what}?{urlencode(params)}")

    def until_quiet(self, *, quiet_s: float, within_s: float) -> None:
        """Wait until the controller has sent no request except those for the lease for `quiet_s` seconds."""
        changed, seen = time.monotonic(), -1

        def is_quiet() -> bool:
            nonlocal changed, seen
            if (now_seen := requests_of(self.ask("report"))) != seen:
                changed, seen = time.monotonic(), now_seen
            return time.monotonic() - changed >= quiet_s

        wait_until(is_quiet, "the controller sends no requests", within_s=within_s, poll_s=POLL_S)

    def until_idle(self, *, within_s: float) -> dict[str, Any]:
        wait_until(lambda: not self.ask("load")["running"], "the load ends", within_s=within_s, poll_s=POLL_S)
        return dict(self.ask("load"))


def requests_of(report: dict[str, Any]) -> int:
    """Return the number of requests except those for the lease. A watch is a request when it begins."""
    return sum(count for kind, count in report["requests"].items() if not kind.endswith(" leases"))


@contextmanager
def running_replay(directory: Path, size: Size) -> Iterator[Replay]:
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.replay", str(directory), *map(str, astuple(size))]
    kubeconfig = directory / "kubeconfig"
    with running_process(command, directory / "replay.log") as server:
        wait_until(
            lambda: server.cpu_s >= 0 and kubeconfig.exists(), "the replay server starts", within_s=READY_WITHIN_S
        )
        yield Replay(kubeconfig)
