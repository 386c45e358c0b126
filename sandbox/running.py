"""Runs a sandbox in its directory from beginning to end: control plane, definitions, simulator; a signal ends it.

Until it is ready, a signal interrupts whatever is being done; from then on it asks for an orderly end; and during that
it is ignored, since nothing is left to hurry. However it ends, no process is left, and of the files only the logs.
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
LOOK_EVERY_S = 0.5

Simulate: TypeAlias = Callable[[Path], Coroutine[Any, Any, None]]
"""Simulates virtual machines on the cluster of a kubeconfig, for ever."""

_Handler: TypeAlias = Callable[[int, FrameType | None], None] | signal.Handlers


class SandboxError(Exception):
    """Part of the sandbox ended by itself. `str()` says which, and why."""


def run_sandbox(home: Home, *, simulate: Simulate | None, on_ready: Callable[[], None]) -> None:
    """Run it until a signal comes. The caller has occupied the home, and is interruptible.

    Raises BinariesUnavailable, ControlPlaneError or CrdError when it does not come up, SandboxError when it does not
    stay up, and KeyboardInterrupt when the signal comes before it is ready.
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

        asyncio.run(_keep(plane, simulate, ready))
    finally:
        _on_signals(signal.SIG_IGN)
        if plane is not None:
            plane.stop()
        home.tidy()


@contextmanager
def interruptible() -> Iterator[None]:
    """Have any of the signals interrupt the block, as Ctrl-C does. Those that are ignored stay so: nohup's, say."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _on_signals(_interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _keep(plane: ControlPlane, simulate: Simulate | None, ready: Callable[[], None]) -> None:
    """Report readiness and stay until a signal comes. Raises SandboxError when something ends by itself.

    Readiness is reported once a signal asks for an orderly end: earlier, a signal interrupts asyncio as it starts.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop.set)

    _on_signals(ask_to_stop)
    try:
        ready()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_watch(plane), name="watch-parts")]
            if simulate:
                tasks.append(group.create_task(_simulate(simulate, plane.kubeconfig), name="simulate"))
            await stop.wait()
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        _on_signals(signal.SIG_IGN)


async def _watch(plane: ControlPlane) -> None:
    """Look now and then whether all parts are there: the kernel tells it only where a signal handler may ask."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if trouble := plane.failed():
            raise SandboxError(trouble)


async def _simulate(simulate: Simulate, kubeconfig: Path) -> None:
    try:
        await simulate(kubeconfig)
    except Exception as error:
        traceback.print_exception(error)  # nothing that a user did: whoever mends it needs the place
        raise SandboxError("the simulator failed") from error
    raise SandboxError("the simulator ended")


def _on_signals(handler: _Handler) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
