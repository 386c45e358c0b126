"""`python -m benchmarks.soak`: random load for an hour, then a table, a JSON file and a picture.

python -m benchmarks.soak [--minutes 60] [--seed 1] [--output FILE] [--judge FILE] [--docs]

The exit code is 1 if a figure grows, if the log has an error, or if the end state does not match the specs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import yaml

from benchmarks.program import Program, running_program
from benchmarks.soak import report
from benchmarks.soak.faults import FaultSchedule, faults_of
from benchmarks.soak.load import Load
from benchmarks.soak.network import Network, running_network
from benchmarks.soak.objects import Api
from benchmarks.soak.sampling import MEASURES, Samples, Scrape, read_page, sampling
from sandbox.admin import Admin, Unanswered
from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.processes import free_ports

OUTPUT = report.ROOT / "benchmarks" / "results" / "soak.json"
PAUSE_S = 0.8
"""The mean pause between two operations."""

SETTLED_WITHIN_S = 180.0
QUIET_S = 30.0
"""The time without load before each scrape of the empty cluster, in seconds. One scrape is before the load, and one is
after the load.
"""

LONG_LEASE = (
    "--lease-duration=60s",
    "--renew-deadline=45s",
    "--retry-period=5s",
)
"""A longer lease than usual. On a busy machine, a restart of the API server can take longer than the usual lease."""

DRAINED = {"blocks": 1.5, "tasks": 5.0, "fds": 5.0, "cached": 0.0, "depth": 0.0, "series": 150.0}
"""The limits for some measures of the controller: their growth from the time before the load to the time after the
deletion of all objects. The limit for `blocks` is a factor. All other limits are differences.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description="Run random load and judge what grows.")
    parser.add_argument("--minutes", type=float, default=60.0, help="duration of the load (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random operations (default 1)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="file for all samples, as JSON")
    parser.add_argument("--judge", type=Path, help="judge the samples of an earlier run instead of a new run")
    parser.add_argument("--docs", action="store_true", help="write the figures and the picture to docs/ too")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # also stops the child processes
    if arguments.judge:
        result = report.read_json(arguments.judge)
    else:
        result = _measured(arguments)
        report.write_json(result, arguments.output)
        print(f"all samples: {arguments.output}")
    report.show(result)
    if arguments.docs:
        report.write_docs(result)
    sys.exit(bool(result.all_problems))


def _measured(arguments: argparse.Namespace) -> report.Result:
    cores = os.cpu_count() or 1
    result = report.Result(
        minutes=arguments.minutes,
        machine=f"{cores} shared core{'s' if cores > 1 else ''}",
        seed=arguments.seed,
        samples=Samples(),
    )
    with tempfile.TemporaryDirectory(prefix="vmherd-soak-") as directory:
        run(Path(directory), result)
    return result


def run(directory: Path, result: report.Result) -> None:
    plane = ControlPlane(directory, find_binaries())
    plane.start()
    with ExitStack() as stack:
        stack.callback(plane.stop)
        network = stack.enter_context(running_network(int(plane.url.rpartition(":")[2])))
        stack.enter_context(_simulator(plane))
        kubeconfig = _through(network, plane)
        log = directory / "controller.log"
        metrics_port, health_port = free_ports(2)
        addresses = (
            f"--metrics-bind-address=127.0.0.1:{metrics_port}",
            f"--health-probe-bind-address=127.0.0.1:{health_port}",
        )
        program = stack.enter_context(running_program(kubeconfig, log, *addresses, "--debug-endpoints", *LONG_LEASE))
        load = Load(Api(Admin(plane.kubeconfig)), Random(result.seed))
        time.sleep(QUIET_S)
        before = Scrape(read_page(metrics_port, health_port))
        load.fill()
        schedule = FaultSchedule(faults_of(plane, network))
        with sampling(lambda: read_page(metrics_port, health_port), result.samples):
            _load(load, schedule, program, minutes=result.minutes, chance=Random(result.seed))
        result.marks, result.operations = schedule.marks, dict(load.done)
        result.failed_operations = dict(load.failed)
        result.verdicts = report.verdicts_of(result.samples)
        result.problems += _settle(load)
        if program.has_ended:
            result.problems.append(f"the controller ended:\n{log.read_text()[-3000:]}")
        else:
            _compare(before, Scrape(read_page(metrics_port, health_port)), result)
        result.problems += errors_in(log.read_text())


def _load(load: Load, schedule: FaultSchedule, program: Program, *, minutes: float, chance: Random) -> None:
    started = time.monotonic()
    told = 0.0
    while (elapsed_s := time.monotonic() - started) < minutes * 60 and not program.has_ended:
        load.step()
        schedule.run_due(elapsed_s)
        if elapsed_s - told > 60:
            told = elapsed_s
            print(f"{elapsed_s / 60:.0f} min: {load.done.total()} operations, {program.rss_mb:.1f} MiB", flush=True)
        time.sleep(chance.expovariate(1 / PAUSE_S))


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
    result.new_series = dict(after.series - before.series)


def errors_in(log: str) -> list[str]:
    """Return the different errors in a JSON log."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    found = [f"log: {line.get('msg')} {line.get('error', line.get('why', ''))}" for line in lines if is_error(line)]
    return sorted(set(found))


def is_error(line: dict[str, object]) -> bool:
    return line.get("level") in ("error", "critical")


def _through(network: Network, plane: ControlPlane) -> Path:
    """Write a kubeconfig with the address of the proxy."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{network.port}"
    path = plane.directory / "proxied.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def _simulator(plane: ControlPlane) -> Iterator[None]:
    command = [sys.executable, "-m", "sandbox.simulator", "--kubeconfig", str(plane.kubeconfig)]
    with (plane.logs / "simulator.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
