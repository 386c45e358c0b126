"""A controller process of the simulation: it starts, crashes, is suspended, and ends."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any

from controller.app import serve
from controller.assembly import Platform
from controller.config.settings import Config
from controller.running import leaf_errors
from controller.runtime.workers.side_thread import R, SideThread
from tests.simulation.loop import PROCESS
from tests.simulation.network import WORLD, Network, opener_of


class Replica:
    """One place for a controller. Each start makes a new process with the real `serve`."""

    def __init__(
        self, name: str, config: Config, network: Network, now: Callable[[], datetime], report: Callable[[str], None]
    ) -> None:
        self.name = name
        self.config = config
        self._network = network
        self._now = now
        self._report = report
        self._process: _Process | None = None
        self.clock_is_off = timedelta()

    def start(self) -> None:
        """Start a process. If it ends, start it again after some seconds, as Kubernetes does."""
        self._process = _Process()
        context = copy_context()
        context.run(PROCESS.set, self._process)
        loop = self._network.loop
        loop.create_task(self._run(self._process), context=context, name=self.name)

    async def _run(self, process: "_Process") -> None:
        try:
            await serve(self.config, process.stop, platform=self._platform(process))
        except (Exception, ExceptionGroup) as error:
            if not process.is_dead:
                self._report(f"{self.name} ended: {'; '.join(map(repr, leaf_errors(error)))}")
        if not process.is_dead:
            process.is_dead = True
            self._network.later(2.0, self._restart, process)

    def _platform(self, process: "_Process") -> Platform:
        """Return a platform that runs everything in the simulated loop, with its time. Plans take no CPU time."""
        loop = self._network.loop
        return Platform(
            elected=lambda elector, stop, _: elector.elected(stop),
            side_thread=_SideStep,
            clock=loop.time,
            lease_clock=lambda: loop.now,
            cpu=lambda: 0.0,
            now=lambda: self._now() + self.clock_is_off,
            open_client=opener_of(self._network, process, self.name),
        )

    def _restart(self, process: "_Process") -> None:
        if self._process is process:
            self.start()

    def crash(self, down_s: float) -> None:
        """End the process at once. Its requests on the way reach the server, and no others do."""
        process = self._process
        if process is not None and not process.is_dead:
            process.end()
            self._network.later(down_s, self._restart, process)

    def crash_after(self, steps: int, down_s: float, *, until: float) -> None:
        """End the process after so many of its next steps, if it gets so far before the time `until`."""
        loop = self._network.loop

        def crash() -> None:
            if loop.time() < until:
                self.crash(down_s)

        if self._process is not None:
            loop.after_steps(self._process, steps, crash)

    def terminate(self) -> None:
        """Ask the process to end, as SIGTERM does."""
        if self._process is not None:
            self._process.stop.set()

    def suspend(self, seconds: float, *, sleeps: bool = False) -> None:
        """Stop the process for some time, as SIGSTOP does. If `sleeps`, the machine stops, and most of its clocks."""
        process, loop = self._process, self._network.loop
        if process is None or process.is_dead or process.is_suspended:
            return

        def resume() -> None:
            process.slept_s += seconds if sleeps else 0.0
            process.is_suspended = False
            loop.resume()

        if sleeps:
            loop.delay_timers(process, seconds)
        process.is_suspended = True
        loop.has_suspended = True
        self._network.later(seconds, resume)

    def kill(self) -> None:
        """End the process at the end of the life."""
        process, self._process = self._process, None
        if process is not None:
            process.end()


class _SideStep(SideThread):
    """Runs the functions for the side thread at a later step of the loop."""

    async def call(self, function: Callable[..., R], *arguments: object, large: bool) -> R:
        if not large:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


class _Process:
    def __init__(self) -> None:
        self.is_suspended = False
        self.is_dead = False
        self.slept_s = 0.0
        self.stop = asyncio.Event()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """The tasks in the order of their creation."""

    def end(self) -> None:
        self.is_dead, self.is_suspended = True, False
        for task in tuple(self.tasks):
            task.cancel()


def follow_tasks(loop: asyncio.AbstractEventLoop) -> None:
    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context")
        process = context.get(PROCESS) if context is not None else PROCESS.get()
        if isinstance(process, _Process):
            process.tasks[task] = None
            task.add_done_callback(process.tasks.pop, context=WORLD)
        return task

    loop.set_task_factory(factory)


async def until_ended(replicas: list[Replica]) -> None:
    for replica in replicas:
        replica.kill()
    for _ in range(50):
        await asyncio.sleep(0.01)
