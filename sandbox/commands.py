"""This module has the commands of `vmherd sandbox`.

up            runs a sandbox until Ctrl-C or SIGTERM; with --detach, it returns when the sandbox is ready
    down          stops only the processes that `up` started in the same directory
    conformance   runs the conformance suite on a sandbox of its own

The exit codes are 0 for success, 1 for a failure, 2 for wrong options, and 130 for a signal during the start.
"""

import shlex
import shutil
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import click

from sandbox import conformance
from sandbox.binaries import PROGRAMS, BinariesUnavailable, find_binaries
from sandbox.controlplane import ControlPlaneError
from sandbox.crds import CrdError
from sandbox.running import Home, HomeError, SandboxError, Simulate, interruptible, run_sandbox
from sandbox.settings import DEFAULT, Detail, SimulationSettings, simulation_options

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

    The control plane is etcd, kube-apiserver and kube-controller-manager with an empty cluster and the CRDs of
    virtual machines. A simulator runs the virtual machines.
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


command.add_command(conformance.command)


def sandbox_up(directory: Path, *, detach: bool = False, settings: SimulationSettings | None = DEFAULT) -> int:
    """Start a sandbox in a directory and return the exit code. Raises click.ClickException after a failure.

    Return when the sandbox has ended. If `detach` is True, return when the sandbox is ready. `settings` are the
    simulator's settings of objects without annotations. If `settings` is None, no simulator runs.
    """
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
    """Run the sandbox in a separate process, and return when the sandbox is ready.

    Raises one of PROBLEMS, or KeyboardInterrupt. After an error, the separate process does not run.
    """
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
    """Return `kubectl`, or the path of vmherd's kubectl if the PATH has no kubectl."""
    ours = Path(sys.executable).with_name("kubectl")
    return "kubectl" if shutil.which("kubectl") or not ours.exists() else shlex.quote(str(ours))


def _error_message(output: Path) -> str:
    """Return the error message in the terminal output of a sandbox. If there is none, return the whole output."""
    text = output.read_text(errors="replace").strip()
    _, found, message = text.rpartition(f"\n{_PREFIX}")
    return message if found else text.removeprefix(_PREFIX)
