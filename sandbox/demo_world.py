"""Where the demo happens: a control plane, a simulator and a controller, and what can be seen of them.

All of it is this process's own: it lives in a temporary directory for as long as the block, and nothing outlives that,
no process and no file.
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

from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.demo_view import View
from sandbox.processes import Child, Spawner, free_ports

KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/default"
SETS = f"{KUBEVIRT}/virtualmachineinstancereplicasets"
VMS = f"{KUBEVIRT}/virtualmachines"
VMIS = f"{KUBEVIRT}/virtualmachineinstances"
POOLS = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools"
EVENTS = "/api/v1/namespaces/default/events"

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Those that end the demo."""

STEP_WITHIN_S = 60.0
LOOK_EVERY_S = 0.1
LOG_LINES = 5


class DemoFailed(Exception):
    """Something did not happen in its time, or happened that must not. `str()` says what, with the end of a log where
    that helps."""


class World:
    """A control plane, a simulator and a controller, all running."""

    def __init__(self, plane: ControlPlane, children: Sequence[Child], metrics_port: int) -> None:
        self.kubeconfig = plane.kubeconfig
        self.metrics_port = metrics_port
        self._plane = plane
        self._children = children
        self._admin = Admin(plane.kubeconfig)

    def look(self) -> View:
        """What is there now. Raises DemoFailed when a part has ended by itself."""
        self._check()
        try:
            sets, pools, vms, vmis, events = (self._items(path) for path in (SETS, POOLS, VMS, VMIS, EVENTS))
        except (Rejected, Unanswered) as error:
            return View(trouble=str(error))
        return View(sets=sets, pools=pools, vms=vms, vmis=vmis, events=events)

    def list(self, path: str, selector: str) -> tuple[tuple[dict[str, Any], ...], str]:
        """The objects that carry a label, and the version that `changes_since` goes on from. Raises DemoFailed."""
        try:
            answer = self._admin.get(f"{path}?labelSelector={selector}")
        except (Rejected, Unanswered) as error:
            raise DemoFailed(str(error)) from error
        return tuple(answer["items"]), str(answer["metadata"]["resourceVersion"])

    def changes_since(self, path: str, selector: str, version: str) -> tuple[dict[str, Any], ...]:
        """Everything that happened to those objects since a version, as watch events: each state that was ever there.

        Takes a second, in which more may happen; that is among them. Raises DemoFailed.
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
                raise DemoFailed(str(event["object"].get("message", "the watch broke off")))
        return events

    def _check(self) -> None:
        if trouble := self._plane.failed():
            raise DemoFailed(trouble)
        for child in self._children:
            if not child.running:
                raise DemoFailed(f"{child.name} ended:\n{child.last_words(LOG_LINES)}")

    def _items(self, path: str) -> tuple[dict[str, Any], ...]:
        return tuple(self._admin.get(path)["items"])


@contextmanager
def running_world() -> Iterator[World]:
    """All parts, started, while the block runs. Raises BinariesUnavailable, ControlPlaneError or CrdError."""
    with ExitStack() as stack:
        try:
            yield _start(stack)
        finally:
            # Nothing is left to hurry, and a second Ctrl-C must not keep a file from being removed.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)


def _start(stack: ExitStack) -> World:
    """Start every part, and have the stack stop it, whichever of them comes up."""
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
    commands = {"simulator": ["-m", "sandbox.simulator"], "controller": ["-m", "controller", *run]}
    children = []
    for name, command in commands.items():
        line = [sys.executable, *command, f"--kubeconfig={plane.kubeconfig}"]
        child = spawner.start(name, line, plane.logs / f"{name}.log")
        stack.callback(child.stop)
        children.append(child)
    print(f"control plane, simulator and controller are up after {time.monotonic() - started:.1f}s", flush=True)
    return World(plane, children, metrics_port)


def until(true: Callable[[], bool], what: str) -> float:
    """Look until it is true, and return how many seconds that took. Raises DemoFailed when it takes too long."""
    started = time.monotonic()
    while not true():
        if time.monotonic() - started > STEP_WITHIN_S:
            raise DemoFailed(f"not within {STEP_WITHIN_S:g}s: {what}")
        time.sleep(LOOK_EVERY_S)
    return time.monotonic() - started
