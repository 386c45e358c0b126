"""`python -m benchmarks.soak`: a small load for an hour, then a table and a JSON file.

python -m benchmarks.soak [--minutes 60] [--seed 1] [--output FILE] [--docs]

The exit code is 1 if a figure grows, if the log has an error, or if the end state does not match the specs.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TypeAlias

from benchmarks.cluster import running_cluster
from benchmarks.controllers import Running, running_controller, running_process
from benchmarks.page import ROOT
from benchmarks.runner import write
from benchmarks.soak import report
from benchmarks.soak.load import Load
from benchmarks.soak.sampling import MEASURES, Samples, Scrape, read_page, sampling
from sandbox.admin import Unanswered
from sandbox.controlplane import APISERVER, ControlPlane
from sandbox.processes import free_ports

OUTPUT = ROOT / "benchmarks" / "results" / "soak.json"
PAUSE_S = 0.8
FAULT_EVERY_S = 150.0
STILL_S = 8.0
"""The time for which the API server stands still. It is shorter than the renew deadline, so the controller keeps its
lease.
"""

STARTED_WITHIN_S = 60.0
SETTLED_WITHIN_S = 180.0
QUIET_S = 30.0
"""The time without load before each scrape of the empty cluster, in seconds. One scrape is before the load, and one is
after the load.
"""

LONG_LEASE = ("--lease-duration=60s", "--renew-deadline=45s", "--retry-period=5s")
"""A longer lease than usual. On a busy machine, a restart of the API server can take longer than the usual lease."""

Faults: TypeAlias = Mapping[str, Callable[[], object]]

DRAINED = {"blocks": 1.5, "tasks": 5.0, "fds": 5.0, "cached": 0.0, "depth": 0.0, "series": 150.0}
"""The limits for some measures of the controller: their growth from the time before the load to the time after the
deletion of all objects. The limit for `blocks` is a factor. All other limits are differences.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description="Run a small load and judge what grows.")
    parser.add_argument("--minutes", type=float, default=60.0, help="duration of the load (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random operations (default 1)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="file for all samples, as JSON")
    parser.add_argument("--docs", action="store_true", help="write the figures to docs/ too")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also stops the child processes
    machine = f"{os.cpu_count()} shared cores"
    result = report.Result(minutes=arguments.minutes, machine=machine, seed=arguments.seed, samples=Samples())
    with tempfile.TemporaryDirectory(prefix="vmherd-soak-") as directory:
        run(Path(directory), result)
    write(result, arguments.output)
    print(f"all samples: {arguments.output}")
    print(report.figures(result))
    if arguments.docs:
        report.write_docs(result)
    sys.exit(bool(result.all_problems))


def run(directory: Path, result: report.Result) -> None:
    with running_cluster(directory) as cluster, ExitStack() as stack:
        plane = cluster.plane
        simulator = [sys.executable, "-m", "sandbox.simulator", "--kubeconfig", str(plane.kubeconfig)]
        stack.enter_context(running_process(simulator, plane.logs / "simulator.log"))
        log = directory / "controller.log"
        metrics_port, health_port = free_ports(2)
        flags = (
            f"--metrics-bind-address=127.0.0.1:{metrics_port}",
            f"--health-probe-bind-address=127.0.0.1:{health_port}",
            "--debug-endpoints",
            *LONG_LEASE,
        )
        program = stack.enter_context(running_controller(cluster.kubeconfig, log, flags=flags))
        program.wait_for('"working"', within_s=STARTED_WITHIN_S)
        load = Load(cluster, Random(result.seed))
        time.sleep(QUIET_S)
        before = Scrape(read_page(metrics_port, health_port))
        load.fill()
        with sampling(lambda: read_page(metrics_port, health_port), result.samples):
            _load(load, program, faults_of(plane), result)
        result.operations, result.failed_operations = dict(load.done), dict(load.failed)
        result.verdicts = report.verdicts_of(result.samples)
        result.problems += _settle(load)
        if program.has_ended:
            result.problems.append(f"the controller ended:\n{log.read_text()[-3000:]}")
        else:
            _compare(before, Scrape(read_page(metrics_port, health_port)), result)
        result.problems += errors_in(log.read_text())


def _load(load: Load, program: Running, faults: Faults, result: report.Result) -> None:
    chance = Random(result.seed)
    started = time.monotonic()
    told = 0.0
    while (elapsed_s := time.monotonic() - started) < result.minutes * 60 and not program.has_ended:
        load.step()
        inject_due(faults, elapsed_s, result.faults)
        if elapsed_s - told > 60:
            told = elapsed_s
            print(f"{elapsed_s / 60:.0f} min: {load.done.total()} operations, {program.rss_mb:.1f} MB", flush=True)
        time.sleep(chance.expovariate(1 / PAUSE_S))


def faults_of(plane: ControlPlane) -> Faults:
    """Return the faults by their labels. The controller sees the API server as it would see a broken network."""

    def kill() -> None:
        os.kill(plane.pids()[APISERVER], signal.SIGKILL)
        plane.restart_apiserver()

    def stand_still() -> None:
        os.kill(plane.pids()[APISERVER], signal.SIGSTOP)
        time.sleep(STILL_S)
        os.kill(plane.pids()[APISERVER], signal.SIGCONT)

    return {
        "API server restarts": plane.restart_apiserver,
        "API server is killed": kill,
        f"API server stands still for {STILL_S:g} s": stand_still,
    }


def inject_due(faults: Faults, elapsed_s: float, injected: list[str], *, interval_s: float = FAULT_EVERY_S) -> None:
    """Inject the next fault if its time has come, and note it. There is one in each interval, in turn."""
    number = len(injected)
    if elapsed_s >= (number + 1) * interval_s:
        label = [*faults][number % len(faults)]
        injected.append(label)
        faults[label]()


def _settle(load: Load) -> list[str]:
    """Wait until all objects match their specs, delete them, and return the problems."""
    load.heal()
    problems = _until_empty(load.differences, "after the load")
    load.empty()
    problems += _until_empty(
        lambda: [f"{left} objects are left"] if (left := load.left()) else [], "after the deletion"
    )
    time.sleep(QUIET_S)
    return problems


def _until_empty(look: Callable[[], list[str]], when: str) -> list[str]:
    deadline = time.monotonic() + SETTLED_WITHIN_S
    found = [""]
    while found and time.monotonic() < deadline:
        time.sleep(1)
        try:
            found = look()
        except Unanswered as error:
            found = [str(error)]
    return [f"{when}: {each}" for each in found]


def _compare(before: Scrape, after: Scrape, result: report.Result) -> None:
    """Compare the controller in the empty cluster after the load with the controller before the load."""
    for name, limit in DRAINED.items():
        old, new = MEASURES[name].read(before), MEASURES[name].read(after)
        result.drained[name] = (old, new)
        if new > (old * limit if name == "blocks" else old + limit):
            result.problems.append(f"{MEASURES[name].title}: {old:g} before the load, {new:g} after the deletion")


def errors_in(log: str) -> list[str]:
    """Return the different errors in a JSON log."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    errors = [line for line in lines if line.get("level") in ("error", "critical")]
    found = [f"log: {line.get('msg')} {line.get('error', line.get('why', ''))}" for line in errors]
    return sorted(set(found))


if __name__ == "__main__":
    main()
