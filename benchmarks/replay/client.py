"""Runs the replay server as a process, and controls it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.replay.objects import Size
from sandbox.admin import Admin

READY_WITHIN_S = 1800.0
POLL_S = 0.1


class Replay:
    """A running replay server."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.admin = Admin(kubeconfig)

    def ask(self, what: str, **params: float) -> Any:
        return self.admin.get(f"/replay/{what}?{urlencode(params)}")

    def until_quiet(self, *, quiet_s: float, within_s: float) -> None:
        """Wait until the controller has sent no request except those for the lease for `quiet_s` seconds."""
        deadline, changed, seen = time.monotonic() + within_s, time.monotonic(), -1
        while time.monotonic() - changed < quiet_s:
            now_seen = requests_of(self.ask("report"))
            if now_seen != seen:
                seen, changed = now_seen, time.monotonic()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the controller still sends requests after {within_s:g} s")
            time.sleep(POLL_S)

    def until_idle(self, *, within_s: float) -> dict[str, Any]:
        """Wait until the server's own load has ended, and return the report of the load."""
        deadline = time.monotonic() + within_s
        while (report := self.ask("load"))["running"]:
            if time.monotonic() > deadline:
                raise RuntimeError("the load of the replay server did not end")
            time.sleep(POLL_S)
        return dict(report)


def requests_of(report: dict[str, Any]) -> int:
    """Return the number of requests except those for the lease. A watch is a request when it begins."""
    return sum(count for kind, count in report["requests"].items() if not kind.endswith(" leases"))


@contextmanager
def running_replay(directory: Path, size: Size) -> Iterator[Replay]:
    directory.mkdir(parents=True, exist_ok=True)
    sizes = {"sets": size.sets, "vmis-of-set": size.vmis_of_set, "pools": size.pools, "vms-of-pool": size.vms_of_pool}
    flags = [f"--{name}={value}" for name, value in sizes.items()]
    with (directory / "replay.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.replay", str(directory), *flags], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while not (directory / "kubeconfig").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the replay server did not start:\n{(directory / 'replay.log').read_text()}")
            time.sleep(POLL_S)
        yield Replay(directory / "kubeconfig")
    finally:
        process.terminate()
        process.wait(30)
