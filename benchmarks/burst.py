"""Scales one replica set to N and back to 0. Measures wall time, CPU, memory and requests of the controller.

A minimal loop sends the same writes for comparison. Wall times come from the API server's audit log. A wall time begins
with the change of `spec.replicas` and ends with the answer to the last create or delete request.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.program import Program, running_program
from benchmarks.subject import SET_NAME, replica_set
from sandbox.admin import Admin
from sandbox.audit import AuditRecord, read_records
from sandbox.controlplane import ControlPlane

SETS = "/apis/kubevirt.io/v1/namespaces/bench/virtualmachineinstancereplicasets"
VMIS = "/apis/kubevirt.io/v1/namespaces/bench/virtualmachineinstances"
TIMEOUT_S = 300.0
POLL_S = 0.2
SETTLE_S = 2.0
"""The wait after the last write, in seconds. In this time, the last Events and the last status are written."""


def measure_burst(plane: ControlPlane, count: int, *, rest_s: float) -> dict[str, Any]:
    """Measure the controller, the minimal loop, and the idle controller."""
    admin = Admin(plane.kubeconfig)
    admin.send("POST", "/api/v1/namespaces", b'{"metadata":{"name":"bench"}}', "application/json")
    with running_program(plane.kubeconfig, plane.logs / "controller.log") as program:
        idle_mb = program.rss_mb
        admin.send("POST", SETS, json.dumps(replica_set(0)).encode(), "application/json")
        time.sleep(SETTLE_S)
        up = _scale(plane, admin, program, count, count)
        full_mb = program.rss_mb
        down = _scale(plane, admin, program, 0, count)
        at_rest = _at_rest(plane, program, rest_s)
        memory = {"idle_mb": idle_mb, "full_mb": full_mb, "peak_mb": program.peak_rss_mb}
    command = [sys.executable, "-m", "benchmarks.bare_loop", str(plane.kubeconfig), "bench", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the bare loop failed:\n{done.stderr}")
    return {"up": up, "down": down, "memory": memory, "rest": at_rest, "bare": json.loads(done.stdout)}


def _scale(plane: ControlPlane, admin: Admin, program: Program, replicas: int, count: int) -> dict[str, Any]:
    """Scale the set until `count` VMIs are created or deleted, and return the measurements."""
    position = plane.audit_log.stat().st_size
    cpu = program.cpu_s
    body = json.dumps({"spec": {"replicas": replicas}}).encode()
    admin.send("PATCH", f"{SETS}/{SET_NAME}", body, "application/merge-patch+json")
    deadline = time.monotonic() + TIMEOUT_S
    while not _reached(admin, replicas):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the set did not reach {replicas} VMIs within {TIMEOUT_S:g}s")
        time.sleep(POLL_S)
    time.sleep(SETTLE_S)
    cpu = program.cpu_s - cpu
    records = list(read_records(plane.audit_log, position))
    ours = [record for record in records if record.user_agent.startswith("vmherd/")]
    asked = next(r for r in records if r.verb == "patch" and r.resource.endswith("replicasets") and r not in ours)
    verb = "create" if replicas else "delete"
    writes = [r for r in ours if r.verb == verb and r.resource == "virtualmachineinstances"]
    wall = max(r.stage_timestamp for r in writes) - asked.request_received_timestamp
    requests = _by_kind(ours)
    beyond_events = sum(n for kind, n in requests.items() if "events" not in kind and "leases" not in kind)
    return {
        "wall_s": wall.total_seconds(),
        "cpu_s": cpu,
        "cpu_ms_each": cpu / count * 1000,
        "writes": len(writes),
        "failed_writes": sum(r.code >= 300 for r in writes),
        "requests_each": beyond_events / count,
        "requests": requests,
    }


def _reached(admin: Admin, replicas: int) -> bool:
    status = admin.get(f"{SETS}/{SET_NAME}").get("status", {})
    if status.get("replicas", 0) != replicas:
        return False
    page = admin.get(f"{VMIS}?limit=1")
    return bool(len(page["items"]) + page["metadata"].get("remainingItemCount", 0) == replicas)


def _at_rest(plane: ControlPlane, program: Program, seconds: float) -> dict[str, Any]:
    """Measure the requests and the CPU time of the controller while nothing changes."""
    time.sleep(SETTLE_S)
    position, cpu = plane.audit_log.stat().st_size, program.cpu_s
    time.sleep(seconds)
    ours = [r for r in read_records(plane.audit_log, position) if r.user_agent.startswith("vmherd/")]
    return {"seconds": seconds, "requests": _by_kind(ours), "cpu_s": program.cpu_s - cpu}


def _by_kind(records: list[AuditRecord]) -> dict[str, int]:
    kinds = Counter(f"{r.verb} {r.resource}{'/' + r.subresource if r.subresource else ''}" for r in records)
    return dict(kinds.most_common())
