"""Measures the scrape of a large fleet, and the metric updates of one reconciliation."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from controller.kinds import POOLS
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import VMS
from controller.metrics.figures import figures_of
from controller.metrics.registry import Metrics
from controller.pool.rollout.limits import rolls_out
from controller.runtime.actions import Create, Done
from informers.meta import ObjectKey

FLEETS = (1_000, 10_000)
ROUNDS = 5
PASSES = 20_000

_POOL = POOLS.resource()
_NAME = POOLS.name
_CREATED = Done(Create(resource=VMS, body=b"{}", key=ObjectKey("bench", "pool-0"), owner_uid="", why=""))


def measure_metrics() -> dict[str, Any]:
    """Measure the scrape of each fleet. Also measure the metric updates of one reconciliation that creates a VM."""
    return {"scrape": {str(count): _scrape(count) for count in FLEETS}, "pass_us": _pass_us()}


def _scrape(count: int) -> dict[str, float]:
    """Measure one scrape of this number of pools: its CPU time and the size of the page.

    `page_ms` is the CPU time on the event loop, for collecting the values. `render_ms` is the CPU time in another
    thread, for formatting the values as text.
    """
    metrics = _metrics()
    pools = [_pool(number) for number in range(count)]
    metrics.show_replicas(partial(figures_of, POOLS.kind, POOLS.group, pools, rolls_out=rolls_out))
    page_s, render_s, size = float("inf"), float("inf"), 0
    for _ in range(ROUNDS):
        started = time.process_time()
        page = metrics.page()
        paged = time.process_time()
        text, _ = page.render()
        page_s, render_s = min(page_s, paged - started), min(render_s, time.process_time() - paged)
        size = len(text)
    return {"page_ms": page_s * 1000, "render_ms": render_s * 1000, "bytes": size}


def _pass_us() -> float:
    """Return the CPU time of all metric updates of one reconciliation, in microseconds."""
    metrics, best = _metrics(), float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(PASSES):
            _report_pass(metrics)
        best = min(best, time.process_time() - started)
    return best / PASSES * 1e6


def _report_pass(metrics: Metrics) -> None:
    metrics.progress(VMS.name)
    metrics.store_size(VMS.name, 1000)
    metrics.added(_NAME)
    metrics.depth(_NAME, 1)
    metrics.depth(_NAME, 0)
    metrics.started(_NAME, waited_s=0.001)
    metrics.worker_busy(_NAME, change=+1)
    metrics.request_finished(verb="POST", host="cluster", code="201", seconds=0.01)
    metrics.acted(_NAME, action="create", outcome="done")
    metrics.carried_out(_NAME, POOLS.kind, ObjectKey("bench", "pool"), [_CREATED])
    metrics.request_finished(verb="PATCH", host="cluster", code="200", seconds=0.01)
    metrics.reconciled(_NAME, result="success", seconds=0.02)
    metrics.worker_busy(_NAME, change=-1)
    metrics.finished(_NAME, worked_s=0.02)


def _metrics() -> Metrics:
    metrics = Metrics(CollectorRegistry())
    metrics.workers(_NAME, most=10)
    return metrics


def _pool(number: int) -> Pool:
    """A pool with a complete status and one condition."""
    name = f"pool-{number:05d}"
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), 3)
    condition = {"type": "ReplicaFailure", "status": "False", "lastTransitionTime": "2026-11-01T12:00:00Z"}
    document = {
        "metadata": {
            "namespace": f"team-{number % 50}",
            "name": name,
            "uid": f"11111111-0000-4000-8000-{number:012d}",
            "generation": 2,
            "creationTimestamp": "2026-11-01T12:00:00Z",
        },
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "virtualMachineTemplate": {}},
        "status": {**counts, "observedGeneration": 2, "printableStatus": "Running", "conditions": [condition]},
    }
    return _POOL.decode(json.dumps(document).encode())
