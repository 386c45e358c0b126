"""This module has the command `vmherd sandbox conformance`, which runs the conformance suite on a new sandbox.

The command starts a control plane, the simulator, and the controller in the mode from `--mode`. Then it runs `vmherd
conformance` and passes all other arguments to it. At the end, it stops all its processes and removes all its files.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import yaml

from controller.config.modes import Mode
from controller.kinds import KINDS
from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.binaries import BinariesUnavailable
from sandbox.controlplane import ControlPlane, ControlPlaneError
from sandbox.crds import PATH as DEFINITIONS
from sandbox.crds import CrdError, name_of, wait_until_served
from sandbox.running import interruptible, start_controller, temporary_plane

MODES: Final = (Mode.STANDALONE, Mode.TAKEOVER, Mode.ALONGSIDE)
NO_CONTROLLER: Final = "none"
"""The choice for `--mode` that starts no controller. Then the suite fails, so users can see how it reports failures."""

PROBLEMS: Final = (BinariesUnavailable, ControlPlaneError, CrdError, Rejected, Unanswered)

KUBEVIRT: Final = Path(__file__).with_name("kubevirt.yaml")


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
    groups = Mode.STANDALONE if mode == NO_CONTROLLER else mode
    try:
        with interruptible(), _running_cluster(mode) as kubeconfig:
            return _suite(("--kubeconfig", str(kubeconfig), "--mode", groups, *arguments))
    except PROBLEMS as error:
        raise click.ClickException(str(error)) from error


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
    began = time.monotonic()
    with temporary_plane("conformance") as plane:
        prepare(plane, mode)
        plane.start_program("simulator", "sandbox.simulator")
        if mode != NO_CONTROLLER:
            # No virt-controller runs in a sandbox.
            flags = (f"--mode={mode}", "--no-second-writer-check", "--no-leader-elect", "--disruption-budgets")
            start_controller(plane, *flags)
        print(f"a sandbox with mode {mode} is up after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        yield plane.kubeconfig


def prepare(plane: ControlPlane, mode: str) -> None:
    """Add a KubeVirt object, and change the CRDs of replica sets and pools as the controller's mode requires.

    In the mode `alongside`, vmherd's own API groups get CRDs of replica sets and pools. In the mode `takeover`, the
    CRDs keep only KubeVirt's status fields. The API server then removes all other status fields.
    """
    admin = Admin(plane.kubeconfig)
    added = []
    for kind in KINDS:
        path = f"{DEFINITIONS}/{kind.plural}.{kind.group}"
        definition = admin.get(path)
        if mode == Mode.ALONGSIDE:
            added.append(under_own_group(definition, kind.own_group, kind.own_short_names))
            admin.apply(f"{DEFINITIONS}/{name_of(added[-1])}", added[-1])
        elif mode == Mode.TAKEOVER and kind.known_status is not None:
            changed = with_status(definition, kind.known_status)
            admin.send("PUT", path, json.dumps(changed).encode(), "application/json")
    definition, kubevirt = yaml.safe_load_all(KUBEVIRT.read_text())
    admin.apply(f"{DEFINITIONS}/{name_of(definition)}", definition)
    wait_until_served(admin, [*added, definition])
    admin.apply("/apis/kubevirt.io/v1/namespaces/default/kubevirts/kubevirt", kubevirt)


def under_own_group(definition: dict[str, Any], group: str, short_names: Sequence[str]) -> dict[str, Any]:
    names = {**definition["spec"]["names"], "shortNames": list(short_names)}
    return {
        "apiVersion": definition["apiVersion"],
        "kind": definition["kind"],
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {**definition["spec"], "group": group, "names": names},
    }


def with_status(definition: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(definition))
    for version in changed["spec"]["versions"]:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        status.pop("default", None)  # KubeVirt's CRDs have no default for the status.
        for field in status["properties"].keys() - known:
            del status["properties"][field]
    return changed
