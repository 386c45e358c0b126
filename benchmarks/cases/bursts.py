"""One replica set or pool goes to N replicas and back to 0. A bare loop sends the same writes for comparison."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from benchmarks.case import About, Case, Measure, Round, Setting
from benchmarks.controllers import Running, running_controller, wait_until
from benchmarks.objects import BURST, OBJECTS
from controller import kinds
from controller.kubevirt.resources import VMIS, VMS
from informers.resource import Resource
from sandbox.admin import Admin
from sandbox.audit import AuditRecord, read_records
from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.pki import ADMIN_GROUP

NAMESPACE = "bench"
USER = "bench-controller"
POLL_S = 0.2
SETTLE_S = 2.0
"""The wait after the last write, in seconds. In this time, the last Events and the last status are written."""


class Cluster(Admin):
    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane.kubeconfig)
        self.plane = plane
        self.kubeconfig = plane.write_kubeconfig(plane.directory / "controller.kubeconfig", USER, ADMIN_GROUP)
        self.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def count(self, path: str) -> int:
        page = self.get(f"{path}?limit=1")
        return int(len(page["items"]) + page["metadata"].get("remainingItemCount", 0))

    def records(self, since: int) -> list[AuditRecord]:
        return list(read_records(self.plane.audit_log, since))

    def of_controller(self, since: int) -> list[AuditRecord]:
        return [record for record in self.records(since) if record.username == USER]


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    plane = ControlPlane(directory / "plane", find_binaries())
    plane.start()
    try:
        yield Cluster(plane)
    finally:
        plane.stop()


BareLoop: TypeAlias = dict[str, dict[str, float]]
BASE_TIMEOUT_S, TIMEOUT_EACH_S = 120.0, 0.03
REST_S, QUICK_REST_S = 60.0, 2.0
REACTIONS, REACTION_PAUSE_S = 20, 0.25


class Burst(Struct, frozen=True):
    """A set or pool, the resource of its children, and its name in `objects.yaml`."""

    owner: Resource[Any]
    child: Resource[Any]
    document: str

    def path(self, name: str = "") -> str:
        return self.owner.path(NAMESPACE, name)

    @property
    def children_path(self) -> str:
        return self.child.path(NAMESPACE)


SETS = Burst(kinds.REPLICA_SETS.resource(), VMIS, "burst set")
POOLS = Burst(kinds.POOLS.resource(), VMS, "burst pool")


def _run(burst: Burst, setting: Setting) -> Round:
    with running_cluster(setting.directory) as cluster:
        log = setting.directory / "controller.log"
        with running_controller(cluster.kubeconfig, log, against=setting.against) as program:
            cluster.create(burst.path(), OBJECTS[burst.document])
            _wait_until_it_works(cluster, burst)
            values = {"idle_mb": program.rss_mb}
            values |= _scale(cluster, burst, program, setting.size, "up", setting.size)
            values["full_mb"] = program.rss_mb
            values |= _react(cluster, burst)
            values |= _scale(cluster, burst, program, 0, "down", setting.size)
            values |= _rest(cluster, program, QUICK_REST_S if setting.quick else REST_S)
        for name, watch in (("bare", False), ("watching", True)):
            values |= _against(
                name, bare_loop(cluster, burst.child.plural, setting.size, watch=watch), values, setting.size
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
    for replicas in (1, 0):
        cluster.patch(burst.path(BURST), {"spec": {"replicas": replicas}})
        _until_reached(cluster, burst, replicas, "the first VM", BASE_TIMEOUT_S)
    time.sleep(SETTLE_S)


def _scale(cluster: Cluster, burst: Burst, program: Running, replicas: int, way: str, count: int) -> Round:
    """Scale until `count` children are created or deleted. Times come from the audit log of the API server."""
    position, cpu_s = cluster.plane.audit_position(), program.cpu_s
    cluster.patch(burst.path(BURST), {"spec": {"replicas": replicas}})
    _until_reached(cluster, burst, replicas, way, BASE_TIMEOUT_S + count * TIMEOUT_EACH_S)
    time.sleep(SETTLE_S)
    cpu_s = program.cpu_s - cpu_s
    records, ours = cluster.records(position), cluster.of_controller(position)
    asked = next(r for r in records if r.verb == "patch" and r.resource == burst.owner.plural and r not in ours)
    verb = "create" if way == "up" else "delete"
    writes = [record for record in ours if record.verb == verb and record.resource == burst.child.plural]
    return {
        f"{way}_s": (max(r.stage_timestamp for r in writes) - asked.request_received_timestamp).total_seconds(),
        f"{way}_cpu_ms": cpu_s / count * 1000,
        f"{way}_writes": len(writes) / count,
        f"{way}_requests": sum(record.resource not in ("events", "leases") for record in ours) / count,
    }


def _react(cluster: Cluster, burst: Burst) -> Round:
    """Delete some children, one after the other. A reaction begins with the delete, and ends with the create."""
    position = cluster.plane.audit_position()
    for child in cluster.get(f"{burst.children_path}?limit={REACTIONS}")["items"]:
        cluster.send("DELETE", f"{burst.children_path}/{child['metadata']['name']}")
        time.sleep(REACTION_PAUSE_S)
    time.sleep(SETTLE_S)
    records = [record for record in cluster.records(position) if record.resource == burst.child.plural]
    lost, made = ([r.request_received_timestamp for r in records if r.verb == verb] for verb in ("delete", "create"))
    times = [(create - delete).total_seconds() * 1000 for delete, create in zip(lost, made, strict=True)]
    return {"reaction_ms": statistics.median(times), "slowest_reaction_ms": max(times)}


def _until_reached(cluster: Cluster, burst: Burst, replicas: int, what: str, within_s: float) -> None:
    wait_until(lambda: cluster.count(burst.children_path) == replicas, what, within_s=within_s, poll_s=POLL_S)


def _rest(cluster: Cluster, program: Running, seconds: float) -> Round:
    """Measure while nothing changes. Requests for the lease are not counted. A watch is counted when it ends."""
    time.sleep(SETTLE_S)
    position, cpu_s = cluster.plane.audit_position(), program.cpu_s
    time.sleep(seconds)
    used_s = program.cpu_s - cpu_s
    others = [r for r in cluster.of_controller(position) if r.resource != "leases" and r.verb != "watch"]
    return {"rest_cpu": used_s / seconds * 100, "rest_requests": len(others)}


def bare_loop(cluster: Cluster, plural: str, count: int, *, watch: bool) -> BareLoop:
    program = [sys.executable, "-m", "benchmarks.bare_loop", *(["--watch"] if watch else [])]
    command = [*program, str(cluster.plane.kubeconfig), NAMESPACE, str(count), plural]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the bare loop failed:\n{done.stderr}")
    return msgspec.json.decode(done.stdout, type=BareLoop)


def _measures(child: str) -> tuple[Measure, ...]:
    found = []
    for way, verb, target in (("up", "create", 1.15), ("down", "delete", 1.2 if child == "VM" else 1.15)):
        cpu = f"CPU for each {verb}"
        found += [
            Measure(f"{way}_s", f"{child}s: all {verb}d", "s", About.WALL),
            Measure(f"{way}_bare_ratio", f"{verb}d, times the bare loop", "x", About.WALL, target=target),
            Measure(f"{way}_watching_ratio", f"{verb}d, times a bare loop with a watch", "x", About.WALL),
            Measure(f"{way}_cpu_ms", cpu, "ms", About.CPU),
            Measure(f"{way}_bare_cpu_ratio", f"{cpu}, times the bare loop", "x", About.CPU, target=1.3),
            Measure(f"{way}_watching_cpu_ratio", f"{cpu}, times a bare loop with a watch", "x", About.CPU),
            Measure(f"{way}_writes", f"{verb}s for each {child}", "", About.COUNT, target=1.0, digits=3),
            Measure(f"{way}_requests", f"requests for each {verb}, without Events", "", About.COUNT, digits=3),
        ]
    return (
        *found,
        Measure("reaction_ms", f"reaction to a lost {child}, median", "ms", About.WALL, digits=1),
        Measure("slowest_reaction_ms", f"reaction to a lost {child}, slowest", "ms", About.WALL, digits=1),
        Measure("idle_mb", "memory at rest", "MB", About.MEMORY, digits=0),
        Measure("full_mb", f"memory with all {child}s", "MB", About.MEMORY, digits=0),
        Measure("rest_cpu", "CPU at rest", "% of a core", About.CPU, target=0.2),
        Measure("rest_requests", "requests at rest, without lease and watches", "", About.COUNT, target=0, digits=0),
    )


def _case(name: str, burst: Burst, owner: str, child: str, more: str = "") -> Case:
    return Case(
        name=name,
        title=f"A {owner} goes up and to 0",
        about=f"One {owner} goes from 0 to N {child}s and back to 0, on a real control plane.{more}",
        unit_of_size=f"{child}s",
        sizes=(1_000, 10_000),
        measures=_measures(child),
        run=lambda setting: _run(burst, setting),
        black_box=True,
    )


SET_BURST = _case("set-burst", SETS, "replica set", "VMI")
POOL_BURST = _case("pool-burst", POOLS, "pool", "VM", " No KubeVirt starts the VMs.")
