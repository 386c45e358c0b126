"""`vmherd demo`: the main job on a control plane of its own, from `kubectl apply` to ready VMIs.

On a terminal it shows a live table and goes on until Ctrl-C. With `--once` it needs no terminal: it applies the
example, waits until all of it is ready, scales it out and in, prints what kubectl prints, and says with its exit code
whether all of it happened in its time. Either way nothing is left behind: no process, no file.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.live import Live

from sandbox.admin import Admin, Refused, Unanswered
from sandbox.binaries import BinariesUnavailable, find_binaries
from sandbox.controlplane import ControlPlane, ControlPlaneError
from sandbox.crds import CrdError
from sandbox.demo_view import View, draw
from sandbox.kubectl import KubectlFailed, KubectlMissing, kubectl_path, run_kubectl
from sandbox.processes import Child, Spawner, free_ports

EXAMPLE = Path(__file__).parent.parent / "manifests" / "examples" / "replicaset-v1alpha3.yaml"
SET = "testreplicaset"
COLLECTIONS = "/apis/kubevirt.io/v1/namespaces/default"
EVENTS = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind%3DVirtualMachineInstanceReplicaSet"

STEP_WITHIN_S = 60.0
REFRESH_S = 0.5
LOG_LINES = 5


class DemoFailed(Exception):
    """Something did not happen in its time. `str()` is one line, with the end of a log where that helps."""


def main(argv: Sequence[str]) -> int:
    """Run the demo and return the exit code: 0, 1 when something did not happen, 130 after Ctrl-C with --once."""
    parser = argparse.ArgumentParser(
        prog="vmherd demo", description="Watch a replica set come up, on a control plane of your own."
    )
    parser.add_argument("--once", action="store_true", help="no terminal needed: run through it, print, and end")
    arguments = parser.parse_args(list(argv))
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        with _world() as world:
            if arguments.once:
                _run_through(world)
            else:
                _watch(world)
    except KeyboardInterrupt:
        return 130 if arguments.once else 0
    except (BinariesUnavailable, ControlPlaneError, CrdError, DemoFailed, KubectlFailed, KubectlMissing) as error:
        print(f"vmherd: demo: {error}", file=sys.stderr)
        return 1
    return 0


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
        if trouble := self._plane.failed():
            raise DemoFailed(trouble)
        for child in self._children:
            if not child.running:
                raise DemoFailed(f"{child.name} ended:\n{child.last_words(LOG_LINES)}")
        try:
            return View(
                sets=self._items(f"{COLLECTIONS}/virtualmachineinstancereplicasets"),
                vmis=self._items(f"{COLLECTIONS}/virtualmachineinstances"),
                events=self._items(EVENTS),
            )
        except (Refused, Unanswered) as error:
            return View(trouble=str(error))

    def _items(self, path: str) -> tuple[dict[str, Any], ...]:
        return tuple(self._admin.get(path)["items"])


@contextmanager
def _world() -> Iterator[World]:
    with ExitStack() as stack:
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
        print(f"control plane, simulator and controller are up after {time.monotonic() - started:.1f}s")
        yield World(plane, children, metrics_port)


def _watch(world: World) -> None:
    """Apply the example and show what becomes of it, until Ctrl-C."""
    print(run_kubectl(world.kubeconfig, "apply", "-f", str(EXAMPLE)), end="")
    directory = Path(kubectl_path()).parent
    hints = (
        f"export KUBECONFIG={world.kubeconfig}" + ("" if shutil.which("kubectl") else f" PATH=$PATH:{directory}"),
        f"kubectl scale vmirs {SET} --replicas 5      kubectl delete vmi --all      kubectl describe vmirs {SET}",
        f"metrics: http://127.0.0.1:{world.metrics_port}/metrics",
    )
    console = Console()
    if not console.is_terminal:
        raise DemoFailed("this is no terminal: use `vmherd demo --once`")
    with Live(console=console, screen=False, auto_refresh=False) as live:
        while True:
            live.update(draw(world.look(), hints), refresh=True)
            time.sleep(REFRESH_S)


def _run_through(world: World) -> None:
    """The same without a terminal: apply, scale out, scale in, each within its time."""
    print(run_kubectl(world.kubeconfig, "apply", "-f", str(EXAMPLE)), end="")
    _wait_for(world, 3)
    for command in (("get", "vmirs,vmi"), ("describe", "vmirs", SET)):
        print(f"\n$ kubectl {' '.join(command)}")
        print(run_kubectl(world.kubeconfig, *command), end="")
    for replicas in (5, 2):
        print(f"\n$ kubectl scale vmirs {SET} --replicas {replicas}")
        print(run_kubectl(world.kubeconfig, "scale", "vmirs", SET, f"--replicas={replicas}"), end="")
        _wait_for(world, replicas)
    print("\n$ kubectl get vmirs,vmi")
    print(run_kubectl(world.kubeconfig, "get", "vmirs,vmi"), end="")


def _wait_for(world: World, replicas: int) -> None:
    """Return when the set and its VMIs show so many, all ready. Raises DemoFailed when they do not in time."""
    started = time.monotonic()
    _until(lambda: _shows(world.look(), replicas), f"{replicas} of {replicas} ready")
    print(f"{replicas} of {replicas} ready after {time.monotonic() - started:.1f}s")


def _shows(view: View, replicas: int) -> bool:
    if len(view.sets) != 1 or len(view.vmis) != replicas:
        return False
    status = view.sets[0].get("status", {})
    return bool(status.get("replicas", 0) == replicas == status.get("readyReplicas", 0))


def _until(true: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + STEP_WITHIN_S
    while not true():
        if time.monotonic() > give_up:
            raise DemoFailed(f"not within {STEP_WITHIN_S:g}s: {what}")
        time.sleep(REFRESH_S / 5)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
