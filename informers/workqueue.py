"""The work queue: it holds the keys that need work and gives each key to one worker at a time.

Its promises are those of client-go's queue:

- *Order*: keys come out in the order in which they were added.
- *No duplicates*: a key that is added several times before a worker takes it comes out once.
- *One worker for each key*: if a key is added while a worker processes it, it comes out again after that worker calls
  `done`. So after every `add` of a key, a run of the key starts.
- *Any number of producers and workers* on one event loop. All methods except `get` and iteration are synchronous.
- *Shutdown*: after `shut_down` the queue accepts no keys, cancels all delays and ends iteration. Workers finish the
  keys that they are processing.

A worker runs `async for key in queue:` and calls `queue.done(key)` in a `finally` block. The queue does not know why a
key failed. It only asks its rate limiter for the delay. If a waiting worker is cancelled, no key is lost, and the next
waiting worker is woken.

Delays use the time of the running loop. Methods that return an age take `now`, which is `loop.time()`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from typing import Generic, TypeVar

from informers.instruments import NO_INSTRUMENTS, QueueInstruments
from informers.ratelimit import RateLimiter, default_rate_limiter

K = TypeVar("K", bound=Hashable)


class QueueShutDown(Exception):
    """The queue was shut down and has no more keys."""


class WorkQueue(Generic[K]):
    """Queue of keys for workers; the docstring of this module is its contract. `name` is a label of its metrics."""

    def __init__(
        self,
        name: str,
        *,
        limiter: RateLimiter[K] | None = None,
        instruments: QueueInstruments = NO_INSTRUMENTS,
    ) -> None:
        self.name = name
        self._limiter = limiter or default_rate_limiter()
        self._instruments = instruments

        self._dirty: dict[K, float] = {}
        """Keys that need a run, oldest first. The value is the time of the first add since the last run began."""

        self._waiting: deque[K] = deque()
        """Keys for the next calls of `get`. Each key is dirty, occurs once, and no worker is processing it."""

        self._processing: dict[K, float] = {}
        """Keys that a worker is processing, with the start time. A key that is also dirty runs again after `done`."""

        self._delayed: dict[K, asyncio.TimerHandle] = {}
        """At most one timer for each key: the earliest one. The event loop orders the timers."""

        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut = False

    def __len__(self) -> int:
        """Number of keys that wait for a worker, without delayed keys and keys that a worker is processing."""
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Request a run of the key that starts after this call. Does nothing if the queue is shut down."""
        if self._shut or key in self._dirty:
            return
        self._dirty[key] = self._now()
        self._instruments.added(self.name)
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add the key after a delay. If the key has several delays, only the delay that ends first counts."""
        if delay_s <= 0:
            self.add(key)
            return
        if self._shut:
            return
        when = self._now() + delay_s
        timer = self._delayed.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._delayed[key] = asyncio.get_running_loop().call_at(when, self._delay_over, key)

    def add_rate_limited(self, key: K, *, at_least_s: float = 0.0, limiter: RateLimiter[K] | None = None) -> float:
        """Add a key that failed after the delay of the rate limiter. Return the delay.

        `at_least_s` is a minimum for the delay, such as a Retry-After. `limiter` replaces the queue's own limiter, for
        failures of another kind. `forget` does not reset that limiter; the caller has to do so.
        """
        delay_s = max(at_least_s, (limiter or self._limiter).delay(key, self._now()))
        self._instruments.retried(self.name)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Reset the rate limiter for a key that succeeded. The key stays in the queue if it is in it."""
        self._limiter.forget(key)

    def retries(self, key: K) -> int:
        """Number of `add_rate_limited` calls for the key since its last `forget`."""
        return self._limiter.retries(key)

    async def get(self) -> K:
        """Wait for a key and return it. The caller must call `done` with the key afterwards, also after a failure.

        Raises QueueShutDown if the queue was shut down and has no more keys.
        """
        # Let other tasks run between two keys: a run that never waits would block the event loop.
        await asyncio.sleep(0)
        while not self._waiting:
            if self._shut:
                raise QueueShutDown(self.name)
            await self._wait_for_key()
        return self._take()

    def __aiter__(self) -> WorkQueue[K]:
        return self

    async def __anext__(self) -> K:
        try:
            return await self.get()
        except QueueShutDown:
            raise StopAsyncIteration from None

    def done(self, key: K) -> None:
        """Tell the queue that a worker has finished the key. Raises ValueError if no worker is processing the key."""
        if key not in self._processing:
            raise ValueError(f"done({key!r}) was called without a get of this key")
        self._instruments.finished(self.name, worked_s=self._now() - self._processing.pop(key))
        if key in self._dirty:
            self._enqueue(key)

    def shut_down(self, *, drain: bool = False) -> None:
        """Stop accepting keys, and drop the waiting keys. With `drain`, the waiting keys still come out first.

        A second call without `drain` ends a drain early.
        """
        self._shut = True
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        if not drain:
            self._dirty.clear()
            self._waiting.clear()
            self._instruments.depth(self.name, 0)
        while self._getters:
            self._wake_getter()

    def oldest_waiting_s(self, now: float) -> float:
        """Waiting time in seconds of the key that has waited longest for a run; 0 if no key waits.

        A key that was added again while a worker processes it counts as waiting. So this value also grows if a worker
        hangs.
        """
        return max(0.0, now - next(iter(self._dirty.values()), now))

    def unfinished_s(self, now: float) -> float:
        """Sum of the seconds that workers have spent on unfinished keys (`workqueue_unfinished_work_seconds`)."""
        return sum(now - since for since in self._processing.values())

    def longest_s(self, now: float) -> float:
        """Seconds since the start of the longest unfinished run (`workqueue_longest_running_processor_seconds`)."""
        return max((now - since for since in self._processing.values()), default=0.0)

    def _enqueue(self, key: K) -> None:
        self._waiting.append(key)
        self._instruments.depth(self.name, len(self._waiting))
        self._wake_getter()

    def _take(self) -> K:
        key = self._waiting.popleft()
        now = self._now()
        waited_s = now - self._dirty.pop(key)
        self._processing[key] = now
        self._instruments.depth(self.name, len(self._waiting))
        self._instruments.started(self.name, waited_s=waited_s)
        return key

    def _delay_over(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)

    async def _wait_for_key(self) -> None:
        """Wait until a key may be available. If this worker is cancelled after its wake-up, wake another worker.

        Otherwise the key would stay in the queue although a worker is waiting.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._getters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            with suppress(ValueError):  # `_wake_getter` may have removed the future after the cancellation
                self._getters.remove(waiter)
            if not waiter.cancelled() and self._waiting:
                self._wake_getter()
            raise

    def _wake_getter(self) -> None:
        while self._getters:
            waiter = self._getters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
