"""`python -m benchmarks.plugin`: how long the commands of `kubectl vmherd` take with many pools.

A real control plane has the pools, in one namespace, with their statuses. Each command is a new process, as for a user.
kubectl completes through the program `kubectl_complete-vmherd`, so the time of kubectl itself is a part of the figure.
CPU is the CPU time of the command without the API server.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from benchmarks.fleet import vm_spec
from sandbox.admin import Admin
from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.kubectl import kubectl_path

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = Path(__file__).parent / "results" / "plugin.json"
NAMESPACE: Final = "default"
POOLS: Final = f"/apis/pool.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/virtualmachinepools"
MERGE: Final = "application/merge-patch+json"
WRITERS: Final = 8

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "complete a verb": ("__complete", "vmherd", "ro"),
    "complete a flag": ("__complete", "vmherd", "rollout", "status", "--w"),
    "complete a flag of expose": ("__complete", "vmherd", "expose", "--ip"),
    "complete a name": ("__complete", "vmherd", "tree", "vmpool/pool-005"),
    "list": ("vmherd", "list"),
    "list -A -o wide": ("vmherd", "list", "-A", "-o", "wide"),
    "list -o json": ("vmherd", "list", "-o", "json"),
    "tree of one pool": ("vmherd", "tree", "vmpool/pool-00500"),
    "why of one pool": ("vmherd", "why", "vmpool/pool-00500"),
    "version (no request)": ("vmherd", "version"),
    "kubectl get vmpool": ("get", "virtualmachinepools"),
}


class Figure(Struct, frozen=True):
    """The median and the longest wall time of a command in seconds, its CPU time, and the size of its output."""

    wall_s: float
    longest_s: float
    cpu_s: float
    bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plugin", description="Measure the plugin's latency.")
    parser.add_argument("--pools", type=int, default=1000, help="pools in the namespace (default 1000)")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command (default 7)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file for the results, as JSON")
    arguments = parser.parse_args()
    with plane_with(arguments.pools) as plane, tempfile.TemporaryDirectory(prefix="vmherd-bin-") as programs:
        install(Path(programs))
        environment = {
            **os.environ,
            "KUBECONFIG": str(plane.kubeconfig),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }
        figures = {name: measure(command, environment, arguments.rounds) for name, command in COMMANDS.items()}
    machine = {"python": platform.python_version(), "system": platform.platform()}
    results = {"machine": machine, "pools": arguments.pools, "figures": {k: asdict(v) for k, v in figures.items()}}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    print(table(figures, arguments.pools))


@contextmanager
def plane_with(pools: int) -> Iterator[ControlPlane]:
    """A control plane with this number of pools."""
    with tempfile.TemporaryDirectory(prefix="vmherd-bench-") as directory:
        plane = ControlPlane(Path(directory), find_binaries())
        plane.start()
        try:
            admin = Admin(plane.kubeconfig)
            with ThreadPoolExecutor(WRITERS) as threads:
                list(threads.map(lambda number: create(admin, number), range(pools)))
            yield plane
        finally:
            plane.stop()


def create(admin: Admin, number: int) -> None:
    name = f"pool-{number:05d}"
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": vm_spec(name)}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "virtualMachineTemplate": template}
    metadata = {"name": name, "labels": {"tier": f"tier-{number % 10}"}}
    body = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": metadata, "spec": spec}
    admin.send("POST", POOLS, json.dumps(body).encode(), "application/json")
    status = {
        "replicas": 3,
        "readyReplicas": 3,
        "updatedReplicas": 3,
        "observedGeneration": 1,
        "printableStatus": "Running",
        "currentRevision": f"{name}-1",
        "updateRevision": f"{name}-1",
        "labelSelector": f"app={name}",
    }
    admin.send("PATCH", f"{POOLS}/{name}/status", json.dumps({"status": status}).encode(), MERGE)


def install(programs: Path) -> None:
    """Write the scripts that pip creates for the plugin's entry points."""
    for name, module in (("kubectl-vmherd", "plugin.__main__"), ("kubectl_complete-vmherd", "plugin.completion")):
        program = programs / name
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom {module} import main\nsys.exit(main())\n"
        program.write_text(f"#!{sys.executable}\n{code}")
        program.chmod(0o755)


def measure(command: tuple[str, ...], environment: Mapping[str, str], rounds: int) -> Figure:
    """Run a kubectl command again and again. The first run only warms up caches."""
    walls, cpus, size = [], [], 0
    for number in range(rounds + 1):
        started = time.perf_counter()
        with subprocess.Popen([kubectl_path(), *command], env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            size = len(process.stdout.read())
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"kubectl {' '.join(command)}: exit {process.returncode}")
        if number:
            walls.append(time.perf_counter() - started)
            cpus.append(usage.ru_utime + usage.ru_stime)
    return Figure(statistics.median(walls), max(walls), statistics.median(cpus), size)


def asdict(figure: Figure) -> dict[str, Any]:
    return {name: getattr(figure, name) for name in figure.__struct_fields__}


def table(figures: Mapping[str, Figure], pools: int) -> str:
    """Return the figures as a table in Markdown."""
    lines = [f"| With {pools} pools | Median | Longest | CPU | Output |", "| --- | --- | --- | --- | --- |"]
    for name, each in figures.items():
        times = " | ".join(f"{1000 * seconds:.0f} ms" for seconds in (each.wall_s, each.longest_s, each.cpu_s))
        lines.append(f"| {name} | {times} | {each.bytes / 1000:.1f} kB |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
