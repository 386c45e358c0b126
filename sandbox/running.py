"""This module runs a sandbox in its directory until a signal comes. A sandbox is a control plane and a simulator.

During the start of the sandbox, a signal interrupts the current action. Later, a signal starts an orderly shutdown.
During the shutdown, signals are ignored. After the shutdown, no process of the sandbox runs, and only the logs and the
lock file are left.
"""

import asyncio
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.home import Home, State
from sandbox.processes import free_ports

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HANDLED = (*SIGNALS, signal.SIGALRM)
_LATER_S = 0.02
"""The seconds until the next attempt to interrupt a program that is importing a module."""
POLL_INTERVAL_S = 0.5
Simulate: TypeAlias = Callable[[Path], Coroutine[Any, Any, None]]
"""A function that simulates virtual machines on the cluster of a kubeconfig. It runs until the task is cancelled."""

_Handler: TypeAlias = Callable[[int, FrameType | None], None] | signal.Handlers


class SandboxError(Exception):
    """Raised if a component of the sandbox ends by itself. `str()` returns the component and the reason."""


class Interrupter:
    """A signal handler that raises KeyboardInterrupt in the main thread.

    During an import it waits, because an exception inside Python's import system can leave a lock behind. Python drops
    an exception that is raised in a callback of the garbage collector. `check` raises it again.
    """

    def __init__(self) -> None:
        self._came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if _imports(frame):
            signal.setitimer(signal.ITIMER_REAL, _LATER_S)
        else:
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._came:
            raise KeyboardInterrupt


def run_sandbox(
    home: Home, *, simulate: Simulate | None, on_ready: Callable[[], None], interrupter: Interrupter
) -> None:
    """Run the sandbox until a signal comes. Call this function inside `Home.occupied` and `interruptible`.

    `on_ready` is called when the sandbox is ready. If `simulate` is None, no virtual machines are simulated. Raises
    BinariesUnavailable, ControlPlaneError or CrdError if the sandbox does not start. Raises SandboxError if a component
    ends by itself. Raises KeyboardInterrupt if a signal comes before the sandbox is ready.
    """
    plane: ControlPlane | None = None
    try:
        home.clear()
        home.write_state(State(pid=os.getpid()))
        plane = ControlPlane(home.directory, find_binaries())
        plane.start()

        def ready() -> None:
            home.write_state(State(pid=os.getpid(), ready=True))
            on_ready()

        interrupter.check()
        asyncio.run(_run_until_signal(plane, simulate, ready))
    finally:
        handle_signals(signal.SIG_IGN)
        if plane is not None:
            plane.stop()
        home.tidy()


@contextmanager
def temporary_plane(purpose: str) -> Iterator[ControlPlane]:
    """Raises BinariesUnavailable, ControlPlaneError or CrdError."""
    with tempfile.TemporaryDirectory(prefix=f"vmherd-{purpose}-") as directory:
        plane = ControlPlane(Path(directory), find_binaries())
        try:
            plane.start()
            yield plane
        finally:
            handle_signals(signal.SIG_IGN)  # a second Ctrl-C must not interrupt the removal of files
            plane.stop()


def start_controller(plane: ControlPlane, *options: str) -> int:
    metrics, health = free_ports(2)
    addresses = f"--metrics-bind-address=127.0.0.1:{metrics}", f"--health-probe-bind-address=127.0.0.1:{health}"
    plane.start_program("controller", "controller", "run", *addresses, "--log-format=json", *options)
    return metrics


@contextmanager
def interruptible() -> Iterator[Interrupter]:
    """Raise KeyboardInterrupt in the block when one of SIGNALS comes.

    Signals that are already ignored, for example because of nohup, stay ignored.
    """
    before = {number: signal.getsignal(number) for number in _HANDLED}
    interrupter = Interrupter()
    handle_signals(interrupter)
    try:
        yield interrupter
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run_until_signal(plane: ControlPlane, simulate: Simulate | None, ready: Callable[[], None]) -> None:
    """Call `ready` and run until a signal comes. Raises SandboxError if a component ends by itself.

    The signal handlers are set before the call of `ready`, because a signal may come immediately after this call.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop.set)

    handle_signals(ask_to_stop)
    try:
        ready()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_watch_components(plane), name="watch-components")]
            if simulate:
                tasks.append(group.create_task(_simulate(simulate, plane.kubeconfig), name="simulate"))
            await stop.wait()
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        handle_signals(signal.SIG_IGN)


async def _watch_components(plane: ControlPlane) -> None:
    """Check regularly whether all components still run. Raises SandboxError if a component has ended."""
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        if failure := plane.failed():
            raise SandboxError(failure)


async def _simulate(simulate: Simulate, kubeconfig: Path) -> None:
    try:
        await simulate(kubeconfig)
    except Exception as error:
        traceback.print_exception(error)  # print the traceback, because this error is a bug and not a user's mistake
        raise SandboxError("the simulator failed") from error
    raise SandboxError("the simulator ended unexpectedly")


def handle_signals(handler: _Handler) -> None:
    """Set the handler of the signals that end a program. Signals that are already ignored stay ignored."""
    for number in _HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
