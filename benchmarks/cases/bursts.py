"""One replica set or pool goes to N replicas and back to 0. A bare loop sends the same writes for comparison."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from benchmarks import subject
from benchmarks.case import About, Case, Measure, Round, Setting
from benchmarks.cluster import NAMESPACE, SETTLE_S, Cluster, requests_without_events, running_cluster, wall_s
from benchmarks.controllers import Running, running_controller

BareLoop: TypeAlias = dict[str, dict[str, float]]
"""The figures of a bare loop, by the verb "create" or "delete"."""

BASE_TIMEOUT_S, TIMEOUT_EACH_S = 120.0, 0.03
REST_S, QUICK_REST_S = 60.0, 2.0


class Burst(Struct, frozen=True):
    """An object with replicas, and the resource of its children."""

    owners: str
    children: str
    owner: Callable[[int], dict[str, Any]]
    owner_group: str = "kubevirt.io/v1"

    def path(self, name: str = "") -> str:
        return f"/apis/{self.owner_group}/namespaces/{NAMESPACE}/{self.owners}" + (f"/{name}" if name else "")

    @property
    def children_path(self) -> str:
        return f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/{self.children}"


SETS = Burst("virtualmachineinstancereplicasets", "virtualmachineinstances", subject.replica_set)
POOLS = Burst("virtualmachinepools", "virtualmachines", subject.pool, "pool.kubevirt.io/v1beta1")


def _run(burst: Burst, setting: Setting) -> Round:
    with running_cluster(setting.directory) as cluster:
        log = setting.directory / "controller.log"
        with running_controller(cluster.kubeconfig, log, against=setting.against) as program:
            cluster.create(burst.path(), burst.owner(0))
            _wait_until_it_works(cluster, burst)
            values = {"idle_mb": program.rss_mb}
            values |= _scale(cluster, burst, program, setting.size, "up", setting.size)
            values["full_mb"] = program.rss_mb
            values |= _scale(cluster, burst, program, 0, "down", setting.size)
            values |= _rest(cluster, program, QUICK_REST_S if setting.quick else REST_S)
        for name, watch in (("bare", False), ("watching", True)):
            values |= _against(
                name, bare_loop(cluster, burst.children, setting.size, watch=watch), values, setting.size
            )
    return values


def _against(name: str, loop: BareLoop, values: Round, count: int) -> Round:
    """Compare the controller with a loop that sent the same writes. `name` is the beginning of the new figures."""
    found: Round = {}
    for way, verb in (("up", "create"), ("down", "delete")):
        found[f"{way}_{name}_s"] = loop[verb]["wall_s"]
        found[f"{way}_{name}_cpu_ms"] = loop[verb]["cpu_s"] / count * 1000
        found[f"{way}_{name}_ratio"] = values[f"{way}_s"] / loop[verb]["wall_s"]
        found[f"{way}_{name}_cpu_ratio"] = values[f"{way}_cpu_ms"] / found[f"{way}_{name}_cpu_ms"]
    return found


def _wait_until_it_works(cluster: Cluster, burst: Burst) -> None:
    """Wait until the controller has made one child and has deleted it again."""
    for replicas in (1, 0):
        cluster.patch(burst.path(subject.SET_NAME), {"spec": {"replicas": replicas}})
        cluster.until(_reached(cluster, burst, replicas), "the first VM", within_s=BASE_TIMEOUT_S)
    time.sleep(SETTLE_S)


def _scale(cluster: Cluster, burst: Burst, program: Running, replicas: int, way: str, count: int) -> Round:
    """Scale until `count` children are created or deleted. Times come from the audit log of the API server."""
    position, cpu_s = cluster.position(), program.cpu_s
    cluster.patch(burst.path(subject.SET_NAME), {"spec": {"replicas": replicas}})
    cluster.until(_reached(cluster, burst, replicas), way, within_s=BASE_TIMEOUT_S + count * TIMEOUT_EACH_S)
    time.sleep(SETTLE_S)
    cpu_s = program.cpu_s - cpu_s
    records, ours = cluster.records(position), cluster.of_controller(position)
    asked = next(r for r in records if r.verb == "patch" and r.resource == burst.owners and r not in ours)
    verb = "create" if way == "up" else "delete"
    writes = [record for record in ours if record.verb == verb and record.resource == burst.children]
    return {
        f"{way}_s": wall_s(asked, writes),
        f"{way}_cpu_ms": cpu_s / count * 1000,
        f"{way}_writes": len(writes) / count,
        f"{way}_requests": requests_without_events(ours) / count,
    }


def _reached(cluster: Cluster, burst: Burst, replicas: int) -> Callable[[], bool]:
    return lambda: cluster.count(burst.children_path) == replicas


def _rest(cluster: Cluster, program: Running, seconds: float) -> Round:
    """Measure while nothing changes. Requests for the lease are not counted. A watch is counted when it ends."""
    time.sleep(SETTLE_S)
    position, cpu_s = cluster.position(), program.cpu_s
    time.sleep(seconds)
    used_s = program.cpu_s - cpu_s
    others = [r for r in cluster.of_controller(position) if r.resource != "leases" and r.verb != "watch"]
    return {"rest_cpu": used_s / seconds * 100, "rest_requests": len(others)}


def bare_loop(cluster: Cluster, plural: str, count: int, *, watch: bool) -> BareLoop:
    command = [
        sys.executable,
        "-m",
        "benchmarks.bare_loop",
        str(cluster.plane.kubeconfig),
        NAMESPACE,
        str(count),
        plural,
        *(["--watch"] if watch else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the bare loop failed:\n{done.stderr}")
    result: BareLoop = json.loads(done.stdout)
    return result


def _measures(child: str) -> tuple[Measure, ...]:
    of_vms = child == "VM"
    return (
        Measure("up_s", f"{child}s: all created", "s", About.WALL),
        Measure("up_bare_ratio", "created, times the bare loop", "x", About.WALL, target=1.15),
        Measure("up_watching_ratio", "created, times a bare loop with a watch", "x", About.WALL),
        Measure("down_s", f"{child}s: all deleted", "s", About.WALL),
        Measure("down_bare_ratio", "deleted, times the bare loop", "x", About.WALL, target=1.2 if of_vms else 1.15),
        Measure("down_watching_ratio", "deleted, times a bare loop with a watch", "x", About.WALL),
        Measure("up_cpu_ms", "CPU for each create", "ms", About.CPU),
        Measure("up_bare_cpu_ratio", "CPU for each create, times the bare loop", "x", About.CPU, target=1.3),
        Measure("up_watching_cpu_ratio", "CPU for each create, times a bare loop with a watch", "x", About.CPU),
        Measure("down_cpu_ms", "CPU for each delete", "ms", About.CPU),
        Measure("down_bare_cpu_ratio", "CPU for each delete, times the bare loop", "x", About.CPU, target=1.3),
        Measure("down_watching_cpu_ratio", "CPU for each delete, times a bare loop with a watch", "x", About.CPU),
        Measure("up_writes", f"creates for each {child}", "", About.COUNT, target=1.0, digits=3),
        Measure("down_writes", f"deletes for each {child}", "", About.COUNT, target=1.0, digits=3),
        Measure("up_requests", "requests for each create, without Events", "", About.COUNT, digits=3),
        Measure("down_requests", "requests for each delete, without Events", "", About.COUNT, digits=3),
        Measure("idle_mb", "memory at rest", "MB", About.MEMORY, digits=0),
        Measure("full_mb", f"memory with all {child}s", "MB", About.MEMORY, digits=0),
        Measure("rest_cpu", "CPU at rest", "% of a core", About.CPU, target=0.2),
        Measure("rest_requests", "requests at rest, without lease and watches", "", About.COUNT, target=0, digits=0),
    )


SET_BURST = Case(
    name="set-burst",
    title="A replica set goes up and to 0",
    about="One replica set goes from 0 to N VMIs and back to 0, on a real control plane.",
    unit_of_size="VMIs",
    sizes=(1_000, 10_000),
    measures=_measures("VMI"),
    run=lambda setting: _run(SETS, setting),
    black_box=True,
)
POOL_BURST = Case(
    name="pool-burst",
    title="A pool goes up and to 0",
    about="One pool goes from 0 to N VMs and back to 0, on a real control plane. No KubeVirt starts the VMs.",
    unit_of_size="VMs",
    sizes=(1_000, 10_000),
    measures=_measures("VM"),
    run=lambda setting: _run(POOLS, setting),
    black_box=True,
)
