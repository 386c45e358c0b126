"""This module has the command `vmherd sandbox conformance`, which runs the conformance suite on a new sandbox.

The command starts a control plane, the simulator, and the controller in the mode from `--mode`. Then it runs `vmherd
conformance` and passes all other arguments to it. At the end, it stops all its processes and removes all its files.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click

from controller.config.modes import Mode
from controller.kinds import KINDS
from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.binaries import BinariesUnavailable, find_binaries
from sandbox.controlplane import ControlPlane, ControlPlaneError
from sandbox.crds import PATH as DEFINITIONS
from sandbox.crds import CrdError
from sandbox.processes import Child, Spawner, free_ports
from sandbox.running import SIGNALS, interruptible

MODES: Final = (Mode.STANDALONE, Mode.TAKEOVER, Mode.ALONGSIDE)
NO_CONTROLLER: Final = "none"
"""The choice for `--mode` that starts no controller. Then the suite fails, so users can see how it reports failures."""

SERVED_S: Final = 30.0
POLL_S: Final = 0.1
PROBLEMS: Final = (BinariesUnavailable, ControlPlaneError, CrdError, Rejected, Unanswered)


@click.command(
    "conformance",
    short_help="run the conformance suite on a new sandbox",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@click.option(
    "--mode",
    type=click.Choice([*(mode.value for mode in MODES), NO_CONTROLLER]),
    default=MODES[0].value,
    help="the mode of the controller",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(*, mode: str, arguments: tuple[str, ...]) -> int:
    """Start a sandbox and the controller, and run `vmherd conformance` on it with the other arguments."""
    if {"--help", "-h", "--list"} & {*arguments}:
        return _suite(arguments)
    try:
        with interruptible(), _running_cluster(mode) as kubeconfig:
            return _suite(("--kubeconfig", str(kubeconfig), "--mode", _groups_of(mode), *arguments))
    except PROBLEMS as error:
        raise click.ClickException(str(error)) from error


def _groups_of(mode: str) -> str:
    return Mode.STANDALONE if mode == NO_CONTROLLER else mode


def _suite(arguments: Sequence[str]) -> int:
    """Run `vmherd conformance` as a separate process.

    After Ctrl-C, return only when the suite has ended, because the suite needs the sandbox until then.
    """
    process = subprocess.Popen([sys.executable, "-m", "controller", "conformance", *arguments])
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # Ctrl-C in a terminal also reaches the suite directly. The suite counts both signals as one signal.
            process.send_signal(signal.SIGTERM)


@contextmanager
def _running_cluster(mode: str) -> Iterator[Path]:
    """Start the sandbox and the controller, and stop them when the block ends. Yield the path of the kubeconfig."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vmherd-conformance-")))
        began = time.monotonic()
        plane = ControlPlane(directory, find_binaries())
        stack.callback(plane.stop)
        plane.start()
        spawner = Spawner()
        stack.callback(spawner.close)
        prepare(plane, mode)
        _start(stack, spawner, plane, "simulator", "sandbox.simulator")
        if mode != NO_CONTROLLER:
            metrics, health = free_ports(2)
            _start(
                stack,
                spawner,
                plane,
                "controller",
                "controller",
                "run",
                f"--mode={mode}",
                f"--metrics-bind-address=127.0.0.1:{metrics}",
                f"--health-probe-bind-address=127.0.0.1:{health}",
                "--no-second-writer-check",  # no virt-controller runs in a sandbox
                "--no-leader-elect",
                "--log-format=json",
            )
        print(f"a sandbox with mode {mode} is up after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        try:
            yield plane.kubeconfig
        finally:
            # Ignore signals during the cleanup, because a second Ctrl-C must not interrupt the removal of files.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)


def _start(stack: ExitStack, spawner: Spawner, plane: ControlPlane, name: str, module: str, *flags: str) -> Child:
    line = [sys.executable, "-m", module, *flags, f"--kubeconfig={plane.kubeconfig}"]
    child = spawner.start(name, line, plane.logs / f"{name}.log")
    stack.callback(child.stop)
    return child


def prepare(plane: ControlPlane, mode: str) -> None:
    """Change the CRDs of replica sets and pools as the controller's mode requires.

    In the mode `alongside`, vmherd's own API groups get CRDs of replica sets and pools. In the mode `takeover`, the
    CRDs keep only KubeVirt's status fields. The API server then removes all other status fields.
    """
    admin = Admin(plane.kubeconfig)
    for kind in KINDS:
        definition = admin.get(f"{DEFINITIONS}/{kind.plural}.{kind.group}")
        if mode == Mode.ALONGSIDE:
            _send(admin, "POST", DEFINITIONS, under_own_group(definition, kind.own_group, kind.own_short_names))
            _wait_until_served(admin, f"/apis/{kind.own_group}/{kind.version}/{kind.plural}")
        elif mode == Mode.TAKEOVER and kind.known_status is not None:
            _send(admin, "PUT", f"{DEFINITIONS}/{kind.plural}.{kind.group}", with_status(definition, kind.known_status))


def under_own_group(definition: dict[str, Any], group: str, short_names: Sequence[str]) -> dict[str, Any]:
    """Return the CRD of the same kind in another API group, with other short names."""
    names = {**definition["spec"]["names"], "shortNames": list(short_names)}
    return {
        "apiVersion": definition["apiVersion"],
        "kind": definition["kind"],
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {**definition["spec"], "group": group, "names": names},
    }


def with_status(definition: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the CRD with only these status fields."""
    changed: dict[str, Any] = json.loads(json.dumps(definition))
    for version in changed["spec"]["versions"]:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        status.pop("default", None)  # KubeVirt's CRDs have no default for the status.
        for field in status["properties"].keys() - known:
            del status["properties"][field]
    return changed


def _send(admin: Admin, method: str, path: str, document: dict[str, Any]) -> None:
    admin.send(method, path, json.dumps(document).encode(), "application/json")


def _wait_until_served(admin: Admin, path: str) -> None:
    """Wait until a list of the resource succeeds. Raises CrdError."""
    deadline = time.monotonic() + SERVED_S
    while True:
        try:
            admin.get(path)
        except Rejected as error:
            if time.monotonic() > deadline:
                raise CrdError(f"{path} is not served: {error}") from error
            time.sleep(POLL_S)
        else:
            return
