"""Runs a sandbox in its directory: control plane, definitions, simulator. A signal ends it.

Before the sandbox is ready, a signal interrupts the current action. After that, a signal requests an orderly shutdown.
During the shutdown, signals are ignored. At the end no process is left, and of the files only the logs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.home import Home, State
from sandbox.processes import reference

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_INTERVAL_S = 0.5

Simulate: TypeAlias = Callable[[Path], Coroutine[Any, Any, None]]
"""Simulates virtual machines on the cluster of a kubeconfig until it is cancelled."""

_Handler: TypeAlias = Callable[[int, FrameType | None], None] | signal.Handlers


class SandboxError(Exception):
    """A component of the sandbox ended by itself. `str()` says which one and why."""


def run_sandbox(home: Home, *, simulate: Simulate | None, on_ready: Callable[[], None]) -> None:
    """Run the sandbox until a signal comes. The caller holds the home's lock and is inside `interruptible`.

    Raises BinariesUnavailable, ControlPlaneError or CrdError if the sandbox does not start, SandboxError if a component
    ends, and KeyboardInterrupt if a signal comes before the sandbox is ready.
    """
    plane: ControlPlane | None = None
    try:
        home.clear()
        me = reference(os.getpid())
        home.write_state(State(runner=me))
        plane = ControlPlane(home.directory, find_binaries())
        plane.start()
        state = State(runner=me, parts=plane.references(), ready=True)

        def ready() -> None:
            home.write_state(state)
            on_ready()

        asyncio.run(_run_until_signal(plane, simulate, ready))
    finally:
        _set_signal_handlers(signal.SIG_IGN)
        if plane is not None:
            plane.stop()
        home.tidy()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let each of the signals interrupt the block as Ctrl-C does. Signals that are ignored, as under nohup, stay
    ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _set_signal_handlers(_interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run_until_signal(plane: ControlPlane, simulate: Simulate | None, ready: Callable[[], None]) -> None:
    """Report readiness and run until a signal comes. Raises SandboxError if a component ends by itself.

    Readiness is reported after the signal handlers are set. Before that, a signal would interrupt the start of asyncio.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop.set)

    _set_signal_handlers(ask_to_stop)
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
        _set_signal_handlers(signal.SIG_IGN)


async def _watch_components(plane: ControlPlane) -> None:
    """Poll whether all components still run. The kernel would report the end of a child only to a signal handler."""
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        if failure := plane.failed():
            raise SandboxError(failure)


async def _simulate(simulate: Simulate, kubeconfig: Path) -> None:
    try:
        await simulate(kubeconfig)
    except Exception as error:
        traceback.print_exception(error)  # this is a bug and not a user's mistake: print the traceback
        raise SandboxError("the simulator failed") from error
    raise SandboxError("the simulator ended unexpectedly")


def _set_signal_handlers(handler: _Handler) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
