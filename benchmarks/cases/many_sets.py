"""Many replica sets of 20 VMIs with 6 KB each: all up, a cold start, and changes that mean nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import subject
from benchmarks.bare_loop import IN_FLIGHT
from benchmarks.case import About, Case, Measure, Round, Setting
from benchmarks.cases.bursts import SETS
from benchmarks.cluster import MERGE, SETTLE_S, WRITES, Cluster, running_cluster
from benchmarks.controllers import Running, running_controller

SET_SIZE = 20
VMI_BYTES = 6_000
UPDATES, QUICK_UPDATES = 3_000, 30
BASE_TIMEOUT_S, TIMEOUT_EACH_S = 180.0, 0.05
POLL_S = 0.02


def _name(number: int) -> str:
    return f"many-{number:04d}"


def _set(number: int, *, replicas: int) -> dict[str, Any]:
    """A replica set whose VMIs have about VMI_BYTES as JSON. The API server adds about 1 KB to each VMI."""
    document = json.loads(json.dumps(subject.replica_set(replicas)))
    labels = {"app": _name(number)}
    document["metadata"]["name"] = _name(number)
    document["spec"] |= {"selector": {"matchLabels": labels}}
    template = document["spec"]["template"]
    template["metadata"] = {"labels": labels}
    padding = VMI_BYTES - 1_000 - len(json.dumps(template))
    template["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] += "#" * padding
    return dict(document)


def _run(setting: Setting) -> Round:
    sets, vmis = setting.size, setting.size * SET_SIZE
    with running_cluster(setting.directory) as cluster:
        _send(cluster, (("POST", SETS.path(), _set(number, replicas=0)) for number in range(sets)))
        log = setting.directory / "controller.log"
        with running_controller(cluster.kubeconfig, log, against=setting.against) as program:
            values = _all_up(cluster, program, sets, vmis)
        _lose_one(cluster)
        with running_controller(cluster.kubeconfig, log, against=setting.against) as program:
            values |= _cold_start(cluster, program)
            cluster.until(lambda: cluster.count(SETS.children_path) == vmis, "all VMIs", within_s=BASE_TIMEOUT_S)
            time.sleep(SETTLE_S * 2)
            values |= _updates(cluster, program, QUICK_UPDATES if setting.quick else UPDATES)
    return values


def _all_up(cluster: Cluster, program: Running, sets: int, vmis: int) -> Round:
    """Wait for the controller's first create, then scale all sets at once."""
    cluster.patch(SETS.path(_name(0)), {"spec": {"replicas": 1}})
    cluster.until(lambda: cluster.count(SETS.children_path) == 1, "the first VMI", within_s=BASE_TIMEOUT_S)
    time.sleep(SETTLE_S)
    position, cpu_s = cluster.position(), program.cpu_s
    change = {"spec": {"replicas": SET_SIZE}}
    _send(cluster, (("PATCH", SETS.path(_name(number)), change) for number in range(sets)))
    within_s = BASE_TIMEOUT_S + vmis * TIMEOUT_EACH_S
    cluster.until(lambda: cluster.count(SETS.children_path) == vmis, "all VMIs", within_s=within_s)
    time.sleep(SETTLE_S)
    cpu_s = program.cpu_s - cpu_s
    records = cluster.records(position)
    asked = min(r.request_received_timestamp for r in records if r.verb == "patch" and r.resource == SETS.owners)
    creates = [r for r in cluster.of_controller(position) if r.verb == "create" and r.resource == SETS.children]
    last = max(record.stage_timestamp for record in creates)
    return {"up_s": (last - asked).total_seconds(), "up_cpu_s": cpu_s, "up_mb": program.rss_mb}


def _cold_start(cluster: Cluster, program: Running) -> Round:
    """Measure from the start of the process to its first write. One VMI is missing, so there is something to write."""
    position, started = cluster.position(), time.monotonic()
    while True:
        values = {"cold_s": time.monotonic() - started, "cold_cpu_s": program.cpu_s, "cold_mb": program.rss_mb}
        if any(r.verb in WRITES and r.resource == SETS.children for r in cluster.of_controller(position)):
            return values
        if values["cold_s"] > BASE_TIMEOUT_S:
            raise RuntimeError("the controller wrote nothing after its start")
        time.sleep(POLL_S)


def _updates(cluster: Cluster, program: Running, count: int) -> Round:
    """Change an annotation of VMIs that means nothing to the controller."""
    page = cluster.admin.get(f"{SETS.children_path}?limit={min(count, 500)}")
    names = [item["metadata"]["name"] for item in page["items"]]
    size = sum(len(json.dumps(item, separators=(",", ":"))) for item in page["items"]) / len(names)
    cpu_s = program.cpu_s
    _send(cluster, (_change(names[number % len(names)], number) for number in range(count)))
    time.sleep(SETTLE_S)
    return {"update_us": (program.cpu_s - cpu_s) / count * 1e6, "vmi_bytes": size}


def _change(name: str, number: int) -> tuple[str, str, dict[str, Any]]:
    return "PATCH", f"{SETS.children_path}/{name}", {"metadata": {"annotations": {"bench": str(number)}}}


def _lose_one(cluster: Cluster) -> None:
    name = cluster.admin.get(f"{SETS.children_path}?limit=1")["items"][0]["metadata"]["name"]
    cluster.admin.send("DELETE", f"{SETS.children_path}/{name}")


def _send(cluster: Cluster, requests: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
    """Send all requests, with at most IN_FLIGHT requests at the same time."""

    def send(request: tuple[str, str, dict[str, Any]]) -> None:
        method, path, body = request
        content_type = MERGE if method == "PATCH" else "application/json"
        cluster.admin.send(method, path, json.dumps(body).encode(), content_type)

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        for _ in pool.map(send, requests):
            pass


MANY_SETS = Case(
    name="many-sets",
    title=f"Many replica sets of {SET_SIZE} VMIs",
    about=(
        f"N replica sets go from 0 to {SET_SIZE} VMIs of about 6 KB at once, on a real control plane. Then one VMI is "
        "deleted, and the controller starts again. Then VMIs change in a way that means nothing to the controller."
    ),
    unit_of_size="sets",
    sizes=(500,),
    measures=(
        Measure("up_s", "all VMIs created", "s", About.WALL),
        Measure("up_cpu_s", "CPU until all VMIs are created", "s", About.CPU),
        Measure("up_mb", "memory with all VMIs", "MB", About.MEMORY, digits=0),
        Measure("cold_s", "cold start: until the first write", "s", About.WALL),
        Measure("cold_cpu_s", "cold start: CPU until the first write", "s", About.CPU),
        Measure("cold_mb", "cold start: memory at the first write", "MB", About.MEMORY, digits=0),
        Measure("update_us", "CPU for a VMI update that changes nothing", "us", About.CPU, digits=0),
        Measure("vmi_bytes", "size of a VMI as JSON", "B", About.COUNT, digits=0),
    ),
    run=_run,
    black_box=True,
)
