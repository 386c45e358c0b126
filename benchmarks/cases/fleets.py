"""A whole cluster in one process: cold start, rest, changes, and reaction time, on the replay server.

The first start writes what is missing. The second is the measured one, and its first write replaces a deleted VMI.
"""

import json
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import astuple

from benchmarks.case import About, Case, Measure, Round, Setting
from benchmarks.controllers import Running, running_controller, running_process, wait_until
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

    def until_quiet(self, quiet_s: float) -> None:
        """Wait until the controller has sent no request except those for the lease for `quiet_s` seconds."""
        changed, seen = time.monotonic(), -1

        def is_quiet() -> bool:
            nonlocal changed, seen
            if (now_seen := requests_of(self.ask("report"))) != seen:
                changed, seen = time.monotonic(), now_seen
            return time.monotonic() - changed >= quiet_s

        wait_until(is_quiet, "the controller sends no requests", within_s=WITHIN_S, poll_s=POLL_S)

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


SET_SIZE, POOL_SIZE = 30, 20
RATE = 1_000
WITHIN_S = 3600.0
CALM_S = 5.0


class Pace:
    """The durations of the phases in seconds, and the number of deleted VMIs."""

    def __init__(self, *, quick: bool) -> None:
        self.quiet_s = 3.0 if quick else 10.0
        self.rest_s = 1.0 if quick else 60.0
        self.churn_s = 1.0 if quick else 60.0
        self.reactions = 3 if quick else 100
        self.pause_s = 0.05 if quick else 0.2


def _run(setting: Setting) -> Round:
    vmis, pace = setting.size, Pace(quick=setting.quick)
    size = Size(max(1, vmis // SET_SIZE), min(SET_SIZE, vmis), max(1, vmis // 3 // POOL_SIZE), min(POOL_SIZE, vmis))
    empty = Size(1, 1, 1, 1)
    with _settled(setting.directory / "empty", empty, pace) as replay:
        base = _cold_start(replay, setting.directory / "empty")
    with _settled(setting.directory / "full", size, pace) as replay:
        cold = _cold_start(replay, setting.directory / "full")
        with _started(replay, setting.directory / "full") as program:
            replay.until_quiet(pace.quiet_s)
            _until_calm(program)
            values = _rest(replay, program, pace)
            values |= _churn(replay, program, pace)
            values |= _reaction(replay, pace)
            values["mb"] = program.rss_mb
    objects = size.objects
    return values | {
        "objects": objects,
        "cold_s": cold["wall_s"],
        "cold_cpu_s": cold["cpu_s"],
        "cold_us_each": (cold["cpu_s"] - base["cpu_s"]) / objects * 1e6,
        "cold_kb_each": (cold["rss_mb"] - base["rss_mb"]) / objects * 1000,
        "cold_mb": cold["rss_mb"],
        **{name: cold[name] for name in ("server_cpu_s", "stall_ms", "stall_cpu_ms", "start_stall_cpu_ms")},
    }


@contextmanager
def _settled(directory: Path, size: Size, pace: Pace) -> Iterator[Replay]:
    with running_replay(directory, size) as replay:
        with _started(replay, directory):
            replay.until_quiet(pace.quiet_s)
        yield replay


@contextmanager
def _started(replay: Replay, directory: Path) -> Iterator[Running]:
    with running_controller(replay.kubeconfig, directory / "controller.log") as program:
        program.wait_for('"working"', within_s=WITHIN_S)
        yield program


def _cold_start(replay: Replay, directory: Path) -> Round:
    stalls = directory / "stalls.json"
    replay.ask("lose-one")
    with running_controller(replay.kubeconfig, directory / "controller.log", stalls=stalls) as program:
        replay.ask("begin", pid=program.pid)
        wait_until(lambda: replay.ask("report")["first_write"], "the first write", within_s=WITHIN_S, poll_s=0.1)
        report = replay.ask("report")
        time.sleep(2)  # the passes that the first lists have queued
        program.signal(signal.SIGUSR1)
        wait_until(stalls.exists, "the file of stalls", within_s=WITHIN_S)
    found = json.loads(stalls.read_text())
    lists_at = report["first_watch_at"]
    return {
        **report["first_write"],
        "server_cpu_s": report["server_cpu_s"],
        "stall_ms": found["wall_ms"],
        "stall_cpu_ms": max(each["cpu_ms"] for each in found["longest"] if each["at"] >= lists_at),
        "start_stall_cpu_ms": max((each["cpu_ms"] for each in found["longest"] if each["at"] < lists_at), default=0.0),
    }


def _until_calm(program: Running) -> None:
    def is_calm() -> bool:
        cpu_s = program.cpu_s
        time.sleep(CALM_S)
        return program.cpu_s - cpu_s < 0.01 * CALM_S

    wait_until(is_calm, "the controller rests", within_s=WITHIN_S)


def _rest(replay: Replay, program: Running, pace: Pace) -> Round:
    replay.ask("begin")
    cpu_s = program.cpu_s
    time.sleep(pace.rest_s)
    used_s = program.cpu_s - cpu_s
    return {"rest_cpu": used_s / pace.rest_s * 100, "rest_requests": requests_of(replay.ask("report"))}


def _churn(replay: Replay, program: Running, pace: Pace) -> Round:
    replay.ask("begin")
    started, cpu_s = time.monotonic(), program.cpu_s
    replay.ask("churn", rate=RATE, seconds=pace.churn_s)
    changes = replay.until_idle(within_s=pace.churn_s + 60)["changes"]
    elapsed_s, used_s = time.monotonic() - started, program.cpu_s - cpu_s
    report = replay.ask("report")
    return {
        "churn_us": used_s / changes * 1e6,
        "churn_rate": changes / elapsed_s,
        "churn_cpu": used_s / elapsed_s * 100,
        "churn_requests": requests_of(report),
        "churn_server_us": report["server_cpu_s"] / changes * 1e6,
    }


def _reaction(replay: Replay, pace: Pace) -> Round:
    replay.ask("react", count=pace.reactions, pause=pace.pause_s)
    report = replay.until_idle(within_s=WITHIN_S)
    times = sorted(report["reactions_ms"])
    if not times:
        raise RuntimeError("the controller did not replace a deleted VMI")
    slow = times[min(len(times) - 1, len(times) * 99 // 100)]
    return {"reaction_ms": statistics.median(times), "reaction_p99_ms": slow, "missed": report["missed"]}


FLEET = Case(
    name="fleet",
    title="A whole cluster in one process, on a replay server",
    about=(
        f"N VMIs in replica sets of {SET_SIZE}, and N/3 VMs with their VMIs in pools of {POOL_SIZE}, on the replay "
        "server. etcd and kube-apiserver do not run. The CPU time of the replay server is a figure of its own."
    ),
    unit_of_size="VMIs in sets",
    sizes=(300, 150_000),
    measures=(
        Measure("objects", "objects: VMIs, VMs, sets and pools", "", About.COUNT, digits=0),
        Measure("cold_s", "cold start: until the first write", "s", About.WALL, target=15.0),
        Measure("cold_cpu_s", "cold start: CPU until the first write", "s", About.CPU),
        Measure("cold_us_each", "cold start: CPU for each object", "us", About.CPU, target=60.0, digits=1),
        Measure("cold_mb", "cold start: memory at the first write", "MB", About.MEMORY, digits=0),
        Measure("cold_kb_each", "cold start: memory for each object", "KB", About.MEMORY, target=3.0),
        Measure("stall_ms", "cold start: longest stall of the event loop, wall", "ms", About.WALL, digits=0),
        Measure("stall_cpu_ms", "longest stall from the first list on, CPU", "ms", About.CPU, target=50, digits=0),
        Measure("start_stall_cpu_ms", "longest stall before the first list, CPU", "ms", About.CPU, digits=0),
        Measure("server_cpu_s", "cold start: CPU of the replay server", "s", About.CPU),
        Measure("mb", "memory after churn and reactions", "MB", About.MEMORY, digits=0),
        Measure("churn_us", "CPU for a VMI update that changes nothing", "us", About.CPU, target=60.0, digits=1),
        Measure("churn_rate", "updates a second", "1/s", About.WALL, digits=0),
        Measure("churn_cpu", "CPU during these updates", "% of a core", About.CPU, target=10.0, digits=1),
        Measure("churn_requests", "requests during these updates", "", About.COUNT, target=0, digits=0),
        Measure("churn_server_us", "CPU of the replay server for each update", "us", About.CPU, digits=1),
        Measure("reaction_ms", "reaction, median (small cluster: at most 10)", "ms", About.WALL, target=20.0, digits=1),
        Measure("reaction_p99_ms", "reaction, 99th percentile", "ms", About.WALL, digits=1),
        Measure("rest_cpu", "CPU at rest", "% of a core", About.CPU, target=0.2),
        Measure("rest_requests", "requests at rest, without the lease", "", About.COUNT, target=0, digits=0),
    ),
    run=_run,
)
