"""The commands of `vmherd sandbox`. Exit codes: 0, 1 for a failure, 2 for wrong options, 130 for a signal."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
import yaml

from controller.config.modes import Mode
from controller.kinds import KINDS
from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.binaries import PROGRAMS, BinariesUnavailable, find_binaries
from sandbox.controlplane import DEFINITIONS, ControlPlane, ControlPlaneError, CrdError, name_of, wait_until_served
from sandbox.running import (
    Home,
    HomeError,
    SandboxError,
    Simulate,
    interruptible,
    run_sandbox,
    start_controller,
    temporary_plane,
)
from sandbox.settings import DEFAULT, Detail, SimulationSettings, simulation_options

MODES: Final = (Mode.STANDALONE, Mode.TAKEOVER, Mode.ALONGSIDE)
KUBEVIRT: Final = Path(__file__).with_name("kubevirt.yaml")

OK, INTERRUPTED = 0, 130

PROBLEMS = (HomeError, BinariesUnavailable, ControlPlaneError, CrdError, SandboxError)
POLL_S = 0.05
_PREFIX = "vmherd: "

DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, readable=False),
    required=True,
    help="the directory of the sandbox, for its kubeconfig, state and logs",
)


@click.group("sandbox")
def command() -> None:
    """A local control plane, with simulated virtual machines in it."""


@command.command("up", short_help="start a sandbox, and stop it at Ctrl-C")
@click.option("--detach", is_flag=True, help="return when the sandbox is ready, and let it run in the background")
@click.option("--simulator/--no-simulator", default=True, help="simulate virtual machines", show_default=True)
@simulation_options
@DIRECTORY
def up(*, directory: Path, detach: bool, simulator: bool, time_scale: float, detail: Detail) -> int:
    """Start a local control plane, and run it until Ctrl-C or SIGTERM.

    It has etcd, kube-apiserver, kube-controller-manager, the CRDs of virtual machines, and a simulator that runs them.
    """
    settings = SimulationSettings(time_scale=time_scale, detail=detail) if simulator else None
    return sandbox_up(directory, detach=detach, settings=settings)


@command.command("down", short_help="stop the sandbox of a directory")
@DIRECTORY
def down(*, directory: Path) -> None:
    """Stop the sandbox of a directory, and keep its logs."""
    home = Home(directory)
    try:
        stopped = home.evict()
    except HomeError as error:
        raise click.ClickException(str(error)) from error
    if stopped is None:
        print(f"no sandbox runs in {home.directory}")
    else:
        parts = ", ".join(PROGRAMS) if stopped.ready else "only the program that was starting the sandbox"
        print(f"stopped the sandbox in {home.directory} ({parts}); its logs are in {home.logs}")


def sandbox_up(directory: Path, *, detach: bool = False, settings: SimulationSettings | None = DEFAULT) -> int:
    """Return the exit code when the sandbox has ended, or is ready with `detach`. Raises click.ClickException."""
    home = Home(directory)
    started = time.monotonic()
    was_ready = False

    def ready() -> None:
        nonlocal was_ready
        was_ready = True
        _print_ready(home, seconds=time.monotonic() - started, detached=detach)

    try:
        with interruptible() as interrupter:
            home.prepare()
            if detach:
                _run_in_background(home, settings)
                ready()
            else:
                with home.occupied():
                    simulate = _simulate(settings) if settings else None
                    run_sandbox(home, simulate=simulate, on_ready=ready, interrupter=interrupter)
    except PROBLEMS as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        return OK if was_ready else INTERRUPTED
    return OK


def _run_in_background(home: Home, settings: SimulationSettings | None) -> None:
    """Run the sandbox in a separate process until it is ready. Raises one of PROBLEMS, or KeyboardInterrupt."""
    with home.occupied():
        pass
    find_binaries()  # download here, because the user sees the progress in this terminal
    command = [sys.executable, "-m", "controller", "sandbox", "up", "--dir", str(home.directory)]
    with home.output.open("w") as output:
        process = subprocess.Popen(
            [*command, *_flags_for(settings)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while process.poll() is None and not _is_ready(home, process.pid):
            time.sleep(POLL_S)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.returncode is not None:
        raise SandboxError(_error_message(home.output))


def _flags_for(settings: SimulationSettings | None) -> list[str]:
    if settings is None:
        return ["--no-simulator"]
    return [f"--time-scale={settings.time_scale}", f"--detail={settings.detail}"]


def _is_ready(home: Home, pid: int) -> bool:
    state = home.state()
    return state is not None and state.ready and state.pid == pid


def _simulate(settings: SimulationSettings) -> Simulate:
    # The HTTP client of the simulator is slow to import. Import the simulator while the API server starts.
    threading.Thread(target=import_module, args=("sandbox.simulator",), daemon=True).start()

    async def simulate(kubeconfig: Path) -> None:
        from controller.logs import configure  # noqa: PLC0415
        from sandbox import simulator  # noqa: PLC0415

        configure("info", "auto", stream=sys.stderr)
        await simulator.run(kubeconfig, defaults=settings, virt_api=True, webhooks=True, launchers=True)

    return simulate


def _print_ready(home: Home, *, seconds: float, detached: bool) -> None:
    down = f"vmherd sandbox down --dir {shlex.quote(str(home.directory))}"
    print(
        f"the sandbox is ready after {seconds:.1f} s; its logs are in {home.logs}\n\n"
        f"  export KUBECONFIG={shlex.quote(str(home.kubeconfig))}\n"
        f"  {_kubectl()} get vmirs,vmi --all-namespaces\n\n"
        "It runs no containers. Run the controller with: vmherd run\n\n"
        f"{'Stop it with' if detached else 'Stop it with Ctrl-C or with'}: {down}",
        flush=True,
    )


def _kubectl() -> str:
    ours = Path(sys.executable).with_name("kubectl")
    return "kubectl" if shutil.which("kubectl") or not ours.exists() else shlex.quote(str(ours))


def _error_message(output: Path) -> str:
    text = output.read_text(errors="replace").strip()
    _, found, message = text.rpartition(f"\n{_PREFIX}")
    return message if found else text.removeprefix(_PREFIX)


@command.command(
    "conformance",
    short_help="run the conformance suite on a new sandbox",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in MODES]),
    default=MODES[0].value,
    help="the mode of the controller",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def conformance(*, mode: str, arguments: tuple[str, ...]) -> int:
    """Run `vmherd conformance` with the other arguments on a new sandbox and a new controller, and remove both."""
    if {"--help", "-h", "--list"} & {*arguments}:
        return _suite(arguments)
    try:
        with interruptible(), _running_cluster(mode) as kubeconfig:
            return _suite(("--kubeconfig", str(kubeconfig), "--mode", mode, *arguments))
    except (*PROBLEMS, Rejected, Unanswered) as error:
        raise click.ClickException(str(error)) from error


def _suite(arguments: Sequence[str]) -> int:
    """Run `vmherd conformance` as a separate process, until it has ended: after Ctrl-C it still needs the sandbox."""
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
        plane.start_program("simulator", "sandbox.simulator", "--launchers")
        # No virt-controller runs in a sandbox.
        flags = ("--no-second-writer-check", "--no-leader-elect", "--disruption-budgets", "--migrations")
        start_controller(plane, f"--mode={mode}", *flags)
        print(f"a sandbox with mode {mode} is up after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        yield plane.kubeconfig


def prepare(plane: ControlPlane, mode: str) -> None:
    """Add a KubeVirt object, and change the CRDs as the controller's mode requires.

    With `alongside`, vmherd's own API groups get CRDs. With `takeover`, the CRDs have only KubeVirt's status fields.
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
