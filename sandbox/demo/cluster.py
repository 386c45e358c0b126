"""Runs the demo's control plane, simulator and controller as child processes, and reads objects."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controller.kinds import KINDS
from controller.kubevirt import resources
from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.controlplane import ControlPlane
from sandbox.demo.tables import Row, View, rows_of
from sandbox.running import start_controller, temporary_plane

NAMESPACE = "default"
VMS = resources.VMS.path(NAMESPACE)
VMIS = resources.VMIS.path(NAMESPACE)
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
OWNERS = {kind.short_names[0]: kind.resource().path(NAMESPACE) for kind in KINDS}
STEP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.1
VIEW_TIMEOUT_S = 3.0
"""The time limit of a request for objects that the demo shows. Meanwhile, the demo reads no keys."""


class DemoFailed(Exception):
    """A step is too slow, has a wrong result or cannot run. `str()` returns the reason, with the end of a log."""


class DemoCluster:
    def __init__(self, plane: ControlPlane, metrics_port: int) -> None:
        self.kubeconfig = plane.kubeconfig
        self.metrics_port = metrics_port
        self._plane = plane
        self._admin = Admin(plane.kubeconfig)

    def view(self) -> View:
        """Return the objects as they are now, or the `error` of a request. Raises DemoFailed if a process has ended."""
        self.check()
        try:
            owners = {short: self._rows(path) for short, path in OWNERS.items()}
            vms, vmis, events = (self._rows(path) for path in (VMS, VMIS, EVENTS))
        except (Rejected, Unanswered) as error:
            return View(error=str(error))
        return View(owners=owners, vms=vms, vmis=vmis, events=events)

    def check(self) -> None:
        if failure := self._plane.failed():
            raise DemoFailed(failure)

    def _rows(self, path: str) -> tuple[Row, ...]:
        return rows_of(self._admin.table(path, timeout_s=VIEW_TIMEOUT_S))


@contextmanager
def running_cluster() -> Iterator[DemoCluster]:
    """Run all components during the block. Raises BinariesUnavailable, ControlPlaneError or CrdError."""
    started = time.monotonic()
    with temporary_plane("demo") as plane:
        # KubeVirt's backoff after a failed start is too long for a demo.
        plane.start_program("simulator", "sandbox.simulator", "--webhooks", "--launchers", "--time-scale=0.05")
        metrics_port = start_controller(plane)
        print(f"control plane, simulator and controller are up after {time.monotonic() - started:.1f}s", flush=True)
        yield DemoCluster(plane, metrics_port)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for the condition. Raises DemoFailed with `what` after STEP_TIMEOUT_S."""
    give_up = time.monotonic() + STEP_TIMEOUT_S
    while not condition():
        if time.monotonic() > give_up:
            raise DemoFailed(f"not finished within {STEP_TIMEOUT_S:g}s: {what}")
        time.sleep(POLL_INTERVAL_S)
