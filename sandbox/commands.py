"""`vmherd sandbox up` and `vmherd sandbox down`: start and stop a local control plane.

    up     runs in the foreground until Ctrl-C or SIGTERM; with --detach it returns when the sandbox is ready
    down   stops what `up` started in that directory, and nothing else

Exit codes: 0 success, 1 failure, 2 wrong options, 130 interrupted before the sandbox was ready.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from controller.config.flags import UsageError
from sandbox.binaries import BinariesUnavailable, find_binaries
from sandbox.controlplane import ControlPlaneError
from sandbox.crds import CrdError
from sandbox.home import Home, HomeError
from sandbox.running import SandboxError, Simulate, interruptible, run_sandbox

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

PROBLEMS = (HomeError, BinariesUnavailable, ControlPlaneError, CrdError, SandboxError)
POLL_S = 0.05
_NAME = "vmherd: "


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments ask for, and return the exit code. Raises UsageError."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "up":
        return sandbox_up(arguments.dir, detach=arguments.detach, simulator=arguments.simulator)
    return sandbox_down(arguments.dir)


def sandbox_up(directory: Path, *, detach: bool = False, simulator: bool = True) -> int:
    """Start a sandbox in a directory. Return when it ends; with `detach`, return when it is ready."""
    home = Home(directory)
    begun = time.monotonic()
    was_ready = False

    def ready() -> None:
        nonlocal was_ready
        was_ready = True
        _tell_ready(home, seconds=time.monotonic() - begun, detached=detach)

    try:
        with interruptible():
            home.prepare()
            if detach:
                _run_in_background(home, simulator=simulator)
                ready()
            else:
                with home.occupied():
                    run_sandbox(home, simulate=_simulate() if simulator else None, on_ready=ready)
    except PROBLEMS as error:
        _complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return OK if was_ready else INTERRUPTED
    return OK


def sandbox_down(directory: Path) -> int:
    """Stop the sandbox of a directory, and print what was stopped."""
    home = Home(directory)
    try:
        stopped = home.evict()
    except HomeError as error:
        _complain(str(error))
        return FAILED
    if stopped is None:
        print(f"no sandbox runs in {home.directory}")
    else:
        parts = ", ".join(stopped.parts) or "nothing but the program that was starting it"
        print(f"stopped the sandbox in {home.directory} ({parts}); its logs are in {home.logs}")
    return OK


def _run_in_background(home: Home, *, simulator: bool) -> None:
    """Start a separate process that runs the sandbox. Return when the sandbox is ready.

    Raises one of PROBLEMS, or KeyboardInterrupt. The process has then ended.
    """
    with home.occupied():
        pass
    find_binaries()  # it may take minutes to fetch them: here, somebody can see how far that is
    command = [sys.executable, "-m", "sandbox.commands", "up", "--dir", str(home.directory)]
    with home.output.open("w") as output:
        process = subprocess.Popen(
            command if simulator else [*command, "--no-simulator"],
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
        raise SandboxError(_last_words(home.output))


def _is_ready(home: Home, pid: int) -> bool:
    state = home.state()
    return state is not None and state.ready and state.runner.pid == pid


def _simulate() -> Simulate:
    from controller.logs import configure  # noqa: PLC0415  the HTTP client takes its time to import
    from sandbox import simulator  # noqa: PLC0415

    configure("info", "auto", stream=sys.stderr)
    return simulator.run


def _tell_ready(home: Home, *, seconds: float, detached: bool) -> None:
    down = f"vmherd sandbox down --dir {shlex.quote(str(home.directory))}"
    print(
        f"the sandbox is ready after {seconds:.1f} s; its logs are in {home.logs}\n\n"
        f"  export KUBECONFIG={shlex.quote(str(home.kubeconfig))}\n"
        f"  {_kubectl()} get vmirs,vmi --all-namespaces\n\n"
        f"{'To stop it' if detached else 'Ctrl-C stops it, and so does'}: {down}",
        flush=True,
    )


def _kubectl() -> str:
    """The kubectl command to type. The kubectl that is installed with vmherd may not be on the PATH."""
    ours = Path(sys.executable).with_name("kubectl")
    return "kubectl" if shutil.which("kubectl") or not ours.exists() else shlex.quote(str(ours))


def _last_words(output: Path) -> str:
    """Why a sandbox in the background ended: its error message, or all of its output if there is none."""
    text = output.read_text(errors="replace").strip()
    _, found, complaint = text.rpartition(f"\n{_NAME}")
    return complaint if found else text.removeprefix(_NAME)


def _complain(line: str) -> None:
    print(f"{_NAME}{line}", file=sys.stderr, flush=True)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.removeprefix('vmherd ')}: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="vmherd sandbox", description="A control plane of your own, with simulated virtual machines in it."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser(
        "up",
        help="start one, and stop it at Ctrl-C",
        description="Start etcd, kube-apiserver and kube-controller-manager with an empty cluster, install the "
        "definitions of virtual machines, simulate these, and go on until Ctrl-C or SIGTERM.",
    )
    up.add_argument("--detach", action="store_true", help="return when it is ready, and let it run in the background")
    up.add_argument("--no-simulator", dest="simulator", action="store_false", help="leave virtual machines as they are")
    down = commands.add_parser(
        "down", help="stop the one in a directory", description="Stop the sandbox of a directory, and keep its logs."
    )
    for command in (up, down):
        command.add_argument(
            "--dir", type=Path, required=True, metavar="DIR", help="its directory: kubeconfig, state and logs"
        )
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as usage:
        _complain(str(usage))
        sys.exit(MISUSED)
