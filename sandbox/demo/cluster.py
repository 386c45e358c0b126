"""This module runs the demo's control plane, simulator and controller, and reads objects from the API server.

All processes are child processes of this process, and all files are in a temporary directory. When the block of
`running_cluster` ends, the processes are stopped and the files are removed.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from controller.kinds import KINDS
from controller.kubevirt import resources
from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.demo.tables import View
from sandbox.processes import Child, Spawner, free_ports

NAMESPACE = "default"
VMS = resources.VMS.path(NAMESPACE)
VMIS = resources.VMIS.path(NAMESPACE)
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
OWNERS = tuple(kind.resource().path(NAMESPACE) for kind in KINDS)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end the demo."""

STEP_TIMEOUT_S = 60.0
"""The time limit of each step of the demo in seconds."""

POLL_INTERVAL_S = 0.1
"""The seconds between two checks of a condition."""

VIEW_TIMEOUT_S = 3.0
"""The time limit of a request for objects that the demo shows. Meanwhile, the demo reads no keys."""

LOG_LINES = 5
"""The number of log lines in an error message."""


class DemoFailed(Exception):
    """Raised if a step is too slow, has a wrong result or cannot run.

    `str()` returns the reason. If a process has ended by itself, the reason contains the end of the process's log.
    """


class DemoCluster:
    """A control plane, a simulator and a controller that run for the demo."""

    def __init__(self, plane: ControlPlane, children: Sequence[Child], metrics_port: int) -> None:
        self.kubeconfig = plane.kubeconfig
        self.metrics_port = metrics_port
        self._plane = plane
        self._children = children
        self._admin = Admin(plane.kubeconfig)

    def view(self) -> View:
        """Return all objects that the demo shows, as they are now.

        If a request fails, return a `View` with the reason in `error`. Raises DemoFailed if a component has ended by
        itself.
        """
        self._check()
        try:
            owners = tuple(owner for path in OWNERS for owner in self._items(path))
            vms, vmis, events = (self._items(path) for path in (VMS, VMIS, EVENTS))
        except (Rejected, Unanswered) as error:
            return View(error=str(error))
        return View(owners=owners, vms=vms, vmis=vmis, events=events)

    def list(self, path: str, selector: str) -> tuple[tuple[dict[str, Any], ...], str]:
        """Return the objects with a label selector, and the resource version of this list.

        Raises DemoFailed. `changes_since` returns the changes after this resource version.
        """
        try:
            answer = self._admin.get(f"{path}?labelSelector={selector}")
        except (Rejected, Unanswered) as error:
            raise DemoFailed(str(error)) from error
        return tuple(answer["items"]), str(answer["metadata"]["resourceVersion"])

    def changes_since(self, path: str, selector: str, version: str) -> tuple[dict[str, Any], ...]:
        """Return the watch events after a resource version, for objects with a label selector.

        The watch runs for one second, so the result includes the events of this second. Raises DemoFailed.
        """
        self._check()
        query = f"labelSelector={selector}&watch=1&timeoutSeconds=1&resourceVersion={version}"
        try:
            lines = self._admin.send("GET", f"{path}?{query}").splitlines()
        except (Rejected, Unanswered) as error:
            raise DemoFailed(str(error)) from error
        events = tuple(json.loads(line) for line in lines)
        for event in events:
            if event["type"] == "ERROR":
                raise DemoFailed(str(event["object"].get("message", "the watch was interrupted")))
        return events

    def _check(self) -> None:
        if failure := self._plane.failed():
            raise DemoFailed(failure)
        for child in self._children:
            if not child.running:
                raise DemoFailed(f"{child.name} ended:\n{child.log_tail(LOG_LINES)}")

    def _items(self, path: str) -> tuple[dict[str, Any], ...]:
        return tuple(self._admin.get(path, timeout_s=VIEW_TIMEOUT_S)["items"])


@contextmanager
def running_cluster() -> Iterator[DemoCluster]:
    """Start all components, and stop all components when the block ends.

    Raises BinariesUnavailable, ControlPlaneError or CrdError.
    """
    with ExitStack() as stack:
        try:
            yield _start(stack)
        finally:
            ignore_signals()  # a second Ctrl-C must not interrupt the removal of files


def ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _start(stack: ExitStack) -> DemoCluster:
    """Start all components, and add their stop functions to `stack`."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vmherd-demo-")))
    started = time.monotonic()
    plane = ControlPlane(directory, find_binaries())
    stack.callback(plane.stop)
    plane.start()
    spawner = Spawner()
    stack.callback(spawner.close)
    metrics_port, health_port = free_ports(2)
    run = ["run", f"--metrics-bind-address=127.0.0.1:{metrics_port}", "--log-format=json"]
    run.append(f"--health-probe-bind-address=127.0.0.1:{health_port}")
    commands = {
        # KubeVirt's backoff after a failed start is too long for a demo.
        "simulator": ["-m", "sandbox.simulator", "--webhooks", "--launchers", "--time-scale=0.05"],
        "controller": ["-m", "controller", *run],
    }
    children = []
    for name, command in commands.items():
        line = [sys.executable, *command, f"--kubeconfig={plane.kubeconfig}"]
        child = spawner.start(name, line, plane.logs / f"{name}.log")
        stack.callback(child.stop)
        children.append(child)
    print(f"control plane, simulator and controller are up after {time.monotonic() - started:.1f}s", flush=True)
    return DemoCluster(plane, children, metrics_port)


def until(condition: Callable[[], bool], what: str) -> float:
    """Wait until the condition is true, and return the seconds of the wait.

    Raises DemoFailed after STEP_TIMEOUT_S seconds. The argument `what` describes the condition in the error message.
    """
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > STEP_TIMEOUT_S:
            raise DemoFailed(f"not finished within {STEP_TIMEOUT_S:g}s: {what}")
        time.sleep(POLL_INTERVAL_S)
    return time.monotonic() - started
