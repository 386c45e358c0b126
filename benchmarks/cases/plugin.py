"""How long the commands of `kubectl vmherd` take with many pools.

A real control plane has the pools, in one namespace, with their statuses. Each command is a new process, as for a user.
kubectl completes through the program `kubectl_complete-vmherd`, so the time of kubectl itself is a part of the figure.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import fleet
from benchmarks.case import About, Case, Measure, Round, Setting
from benchmarks.cluster import NAMESPACE, Cluster, running_cluster
from sandbox.kubectl import kubectl_path

POOLS: Final = f"/apis/pool.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/virtualmachinepools"
POOL: Final = fleet.shapes(fleet.Size(1, 1, 1, 3))["pool"]
WRITERS: Final = 8
RUNS: Final = 7

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "complete a verb": ("__complete", "vmherd", "ro"),
    "complete a flag": ("__complete", "vmherd", "rollout", "status", "--w"),
    "complete a flag of expose": ("__complete", "vmherd", "expose", "--ip"),
    "complete a name": ("__complete", "vmherd", "tree", "-n", NAMESPACE, "vmpool/pool-005"),
    "list": ("vmherd", "list", "-n", NAMESPACE),
    "list -A -o wide": ("vmherd", "list", "-A", "-o", "wide"),
    "list -o json": ("vmherd", "list", "-n", NAMESPACE, "-o", "json"),
    "tree of one pool": ("vmherd", "tree", "-n", NAMESPACE, "vmpool/pool-00000"),
    "why of one pool": ("vmherd", "why", "-n", NAMESPACE, "vmpool/pool-00000"),
    "version (no request)": ("vmherd", "version"),
    "kubectl get vmpool": ("get", "virtualmachinepools", "-n", NAMESPACE),
}


def measure(setting: Setting) -> Round:
    with running_cluster(setting.directory) as cluster:
        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(lambda number: _create(cluster, number), range(setting.size)))
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": paths}
        values: Round = {}
        runs = 1 if setting.quick else RUNS
        for name, command in COMMANDS.items():
            values |= {f"{name} {key}": ms for key, ms in _measured(command, environment, runs).items()}
    return values


def _create(cluster: Cluster, number: int) -> None:
    document = msgspec.json.decode(POOL.render(number))
    name = document["metadata"]["name"]
    metadata = {"name": name, "labels": {"tier": f"tier-{number % 10}"}}
    kind = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool"}
    cluster.create(POOLS, {**kind, "metadata": metadata, "spec": document["spec"]})
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
    cluster.patch(f"{POOLS}/{name}/status", {"status": status})


def _measured(command: tuple[str, ...], environment: Mapping[str, str], runs: int) -> Round:
    """Run a kubectl command again and again. The first run only warms up caches."""
    walls, cpus = [], []
    for _ in range(runs + 1):
        started = time.perf_counter()
        with subprocess.Popen([kubectl_path(), *command], env=environment, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"kubectl {' '.join(command)}: exit {process.returncode}")
        walls.append((time.perf_counter() - started) * 1000)
        cpus.append((usage.ru_utime + usage.ru_stime) * 1000)
    return {
        "wall_ms": statistics.median(walls[1:]),
        "longest_ms": max(walls[1:]),
        "cpu_ms": statistics.median(cpus[1:]),
    }


PLUGIN = Case(
    name="plugin",
    title="The commands of `kubectl vmherd`",
    about="Each command with N pools in one namespace, on a real control plane. CPU is that of kubectl and the plugin.",
    unit_of_size="pools",
    sizes=(1_000,),
    measures=tuple(
        measure
        for name in COMMANDS
        for measure in (
            Measure(f"{name} wall_ms", f"{name}: median", "ms", About.WALL, digits=0),
            Measure(f"{name} longest_ms", f"{name}: longest", "ms", About.WALL, digits=0),
            Measure(f"{name} cpu_ms", f"{name}: CPU", "ms", About.CPU, digits=0),
        )
    ),
    run=measure,
)
