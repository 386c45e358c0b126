"""A control plane of a benchmark, and what its audit log says of the controller's requests."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.controllers import wait_until
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

    def create(self, path: str, document: dict[str, Any]) -> None:
        self.send("POST", path, json.dumps(document).encode(), "application/json")

    def patch(self, path: str, change: dict[str, Any]) -> None:
        self.send("PATCH", path, json.dumps(change).encode(), "application/merge-patch+json")

    def delete(self, path: str, propagation: str = "Background") -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        self.send("DELETE", path, json.dumps(options).encode(), "application/json")

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(path)["items"]
        return found

    def count(self, path: str) -> int:
        page = self.get(f"{path}?limit=1")
        return int(len(page["items"]) + page["metadata"].get("remainingItemCount", 0))

    def until(self, reached: Callable[[], bool], what: str, *, within_s: float) -> None:
        wait_until(reached, what, within_s=within_s, poll_s=POLL_S)

    def position(self) -> int:
        return self.plane.audit_position()

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


def requests_without_events(records: list[AuditRecord]) -> int:
    return sum(record.resource not in ("events", "leases") for record in records)


def wall_s(asked: AuditRecord, writes: list[AuditRecord]) -> float:
    return (max(record.stage_timestamp for record in writes) - asked.request_received_timestamp).total_seconds()
