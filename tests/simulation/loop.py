"""An event loop with virtual time. A seed makes its choices, and it has no threads and no sockets.

The clock jumps to the next timer when no callback is ready. Each iteration takes a little virtual time, as on a real
CPU. asyncio promises that ready callbacks run in the order in which they became ready, so this order is never changed.
Tasks race because latencies and timers have random times.

A *process* is one running controller. All callbacks of its tasks carry the process in a context variable. A suspended
process does not run: its callbacks wait until it continues, while the time of the others goes on. If its machine
sleeps, the clock and the timers of the process stand still too, as `CLOCK_MONOTONIC` does.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from heapq import heapify, heappop, heappush
from random import Random
from time import thread_time
from typing import Any, Final, Protocol

PROCESS: Final[ContextVar["Process | None"]] = ContextVar("process", default=None)

ITERATION_S: Final = 0.0002
"""The longest virtual time of one iteration in seconds."""

MEASURED: Final = 20
"""The CPU time is measured once in so many iterations, because asking for it costs more than most of them."""

INLINE_S: Final = 0.05
"""The longest delay of a function that would run in another thread, in seconds."""


class Process(Protocol):
    """A process of the simulation. `is_suspended` is True while the operating system does not run it. `slept_s` is the
    time for which its machine has slept, in seconds. If `is_dead`, no request of it is sent any more.
    """

    is_dead: bool
    is_suspended: bool
    slept_s: float


def _slept_s(process: Process | None) -> float:
    return 0.0 if process is None else process.slept_s


class _Timer(asyncio.TimerHandle):
    def when(self) -> float:
        """The time on the clock of the timer's process. The loop itself sorts by `_when`."""
        return self._when - _slept_s(self._context.get(PROCESS))  # type: ignore[attr-defined]


class HotLoop(Exception):
    """The callbacks do not come to an end."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one life. `most` limits the number of callbacks, so that an endless loop is found."""

    def __init__(self, chance: Random, most: int = 4_000_000) -> None:
        super().__init__()
        self._chance = chance
        self._now = 0.0
        self._left = most
        self._suspended: deque[asyncio.Handle] = deque()
        self._iterations, self._measured = 0, thread_time()
        self.slowest_s = 0.0
        """The longest CPU time of `MEASURED` iterations in seconds. It is no part of the history."""

        self._countdown: tuple[Process, int, Callable[[], None]] | None = None
        self.has_suspended = False
        """True while a process is suspended, or its callbacks wait."""

    @property
    def now(self) -> float:
        """The time of the world. `time` is the time of the running process."""
        return self._now

    def time(self) -> float:
        return self._now - _slept_s(PROCESS.get())

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when + _slept_s(PROCESS.get()), callback, args, self, context)
        heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True
        return timer

    def delay_timers(self, process: Process, seconds: float) -> None:
        """Let all timers of a process fire later, because its machine sleeps."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        for timer in timers:
            if timer._context.get(PROCESS) is process:  # type: ignore[attr-defined]
                timer._when += seconds
        heapify(timers)

    def resume(self) -> None:
        """Continue the callbacks of the processes that were suspended."""
        self._ready.extend(self._suspended)  # type: ignore[attr-defined]
        self._suspended.clear()

    def after_steps(self, process: Process, steps: int, callback: Callable[[], None]) -> None:
        """Call back after so many further steps of the process, each from one await to the next."""
        self._countdown = process, steps, callback

    def _count_down(self, handle: asyncio.Handle) -> None:
        assert self._countdown is not None
        process, left, callback = self._countdown
        if handle._context.get(PROCESS) is process:  # type: ignore[attr-defined]
            self._countdown = (process, left - 1, callback) if left > 1 else None
            if left <= 1:
                callback()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run the function on this loop, at a random time soon."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._chance.uniform(0, INLINE_S), run)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            _taken(timers)
        if not ready:
            if not timers:
                raise RuntimeError("no callback and no timer is left")
            self._now = max(self._now, timers[0]._when)
        self._now += self._chance.random() * ITERATION_S
        while timers and timers[0]._when <= self._now:
            handle = _taken(timers)
            if not handle._cancelled:
                ready.append(handle)
        self._left -= len(ready)
        if self._left < 0:
            raise HotLoop(f"too many callbacks after {self._now:.0f} s")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled or (self.has_suspended and self._waits(handle)):
                continue
            handle._run()
            if self._countdown is not None:
                self._count_down(handle)
        self._iterations += 1
        if self._iterations % MEASURED == 0:
            before, self._measured = self._measured, thread_time()
            self.slowest_s = max(self.slowest_s, self._measured - before)

    def _waits(self, handle: asyncio.Handle) -> bool:
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is None or not process.is_suspended:
            return False
        self._suspended.append(handle)
        return True

    def _process_events(self, events: Any) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There are no threads."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is dropped when its time comes."""


def _taken(timers: list[asyncio.TimerHandle]) -> asyncio.TimerHandle:
    handle = heappop(timers)
    handle._scheduled = False
    return handle
