"""A work queue stores the keys that need work. At most one worker at a time gets the same key.

The section "Work queue" of docs/informers.md lists its promises: those of client-go's queue, and flows take turns.

A worker runs `async for key in queue:`, calls `queue.done(key)` in a `finally` block, and `add_rate_limited` after a
failure. The parameter `now` is the time of the running event loop.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeVar

from informers.instruments import NO_INSTRUMENTS, Instruments
from informers.ratelimit import RateLimiter, default_rate_limiter

K = TypeVar("K", bound=Hashable)

NOTHING: Final = object()
"""No flow. `None` can be a flow."""


class QueueShutDown(Exception):
    """The queue was shut down and has no more keys."""


class QueueKeys(NamedTuple, Generic[K]):
    """The keys that wait for a worker, that workers process, and that are delayed, with the seconds left."""

    queued: tuple[K, ...]
    running: tuple[K, ...]
    delayed: Mapping[K, float]


class WorkQueue(Generic[K]):
    """A queue with fair flows, such as namespaces. At most `most_of_flow` workers at a time get keys of one flow."""

    def __init__(
        self,
        name: str,
        *,
        limiter: RateLimiter[K] | None = None,
        instruments: Instruments = NO_INSTRUMENTS,
        flow: Callable[[K], Hashable] = lambda _key: None,
        most_of_flow: int | None = None,
    ) -> None:
        self.name = name
        self._flow = flow
        self._most_of_flow = most_of_flow
        self._running: Counter[Hashable] = Counter()
        """For each flow: the number of its keys that workers are processing."""
        self._limiter = limiter or default_rate_limiter()
        self._instruments = instruments

        self._dirty: dict[K, float] = {}
        """The keys that need a run, in order, with the time of the first `add` since their last run began."""

        self._waiting: dict[Hashable, deque[K]] = {}
        """The keys of the next calls of `get`, by flow, the next turn first. None is in `_processing`."""

        self._size = 0
        self._processing: dict[K, float] = {}
        """The keys of the workers, with the start of the run. One that is also in `_dirty` runs again after `done`."""

        self._delayed: dict[K, asyncio.TimerHandle] = {}
        """The timers of the delayed keys. If a key has several delays, only the timer that ends first is stored."""

        self._getters: deque[asyncio.Future[None]] = deque()
        self._first_get: float | None = None
        self._shut = False

    def __len__(self) -> int:
        """Delayed keys and keys that a worker is processing are not counted."""
        return self._size

    def add(self, key: K) -> None:
        """Request a run of the key. The run starts after this call. Do nothing if the queue is shut down."""
        if self._shut or key in self._dirty:
            return
        self._dirty[key] = self._now()
        self._instruments.added(self.name)
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add the key once, when its first delay ends. Do nothing if the queue is shut down."""
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
        """Add a failed key again, after at least `at_least_s`. Return the delay in seconds.

        A `limiter` replaces the queue's own one for this call. The queue's `forget` does not reset it.
        """
        delay_s = max(at_least_s, (limiter or self._limiter).delay(key, self._now()))
        self._instruments.retried(self.name)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Reset the rate limiter for a key that succeeded. This method does not remove the key from the queue."""
        self._limiter.forget(key)

    def retries(self, key: K) -> int:
        """Return the number of `add_rate_limited` with the queue's own limiter since the last `forget` of the key."""
        return self._limiter.retries(key)

    async def get(self) -> K:
        """Wait for a key. The caller must call `done` with it, also after a failure. Raise QueueShutDown at the end."""
        if self._first_get is None:
            self._first_get = self._now()
        # Let other tasks run between two keys. Otherwise a worker that never waits would block the event loop.
        await asyncio.sleep(0)
        while (flow := self._next_flow()) is NOTHING:
            if self._shut and not self._waiting:
                raise QueueShutDown(self.name)
            await self._wait_for_key()
        return self._take(flow)

    def __aiter__(self) -> "WorkQueue[K]":
        return self

    async def __anext__(self) -> K:
        try:
            return await self.get()
        except QueueShutDown:
            raise StopAsyncIteration from None

    def done(self, key: K) -> None:
        """Tell the queue that a worker has finished the key. Raise ValueError if no worker is processing the key."""
        if key not in self._processing:
            raise ValueError(f"done({key!r}) was called without a get of this key")
        self._instruments.finished(self.name, worked_s=self._now() - self._processing.pop(key))
        flow = self._flow(key)
        self._running[flow] -= 1
        if not self._running[flow]:
            del self._running[flow]
        if key in self._dirty:
            self._enqueue(key)
        elif self._waiting:
            self._wake_getter()
        while self._shut and self._getters:
            self._wake_getter()

    def shut_down(self, *, drain: bool = False) -> None:
        """Stop accepting keys, and cancel all delays. Without `drain`, also a later one, remove waiting keys too."""
        self._shut = True
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        if not drain:
            self._dirty.clear()
            self._waiting.clear()
            self._size = 0
            self._instruments.depth(self.name, 0)
        while self._getters:
            self._wake_getter()

    def keys(self, now: float) -> QueueKeys[K]:
        """Return all keys of the queue. A key that is added again while a worker processes it is queued and running."""
        delayed = {key: max(0.0, timer.when() - now) for key, timer in self._delayed.items()}
        return QueueKeys(tuple(self._dirty), tuple(self._processing), delayed)

    def oldest_waiting_s(self, now: float) -> float:
        """Return the longest wait of a key for a run in seconds, or 0. A key in work counts if it was added again."""
        return max(0.0, now - next(iter(self._dirty.values()), now))

    def unfinished_s(self, now: float) -> float:
        """Return the seconds of all unfinished runs together (`workqueue_unfinished_work_seconds`)."""
        return sum(now - since for since in self._processing.values())

    def longest_s(self, now: float) -> float:
        """Return the seconds of the oldest unfinished run, or 0 (`workqueue_longest_running_processor_seconds`)."""
        return max((now - since for since in self._processing.values()), default=0.0)

    def _enqueue(self, key: K) -> None:
        self._waiting.setdefault(self._flow(key), deque()).append(key)
        self._size += 1
        self._instruments.depth(self.name, self._size)
        self._wake_getter()

    def _next_flow(self) -> Hashable:
        most = self._most_of_flow
        return next((flow for flow in self._waiting if most is None or self._running[flow] < most), NOTHING)

    def _take(self, flow: Hashable) -> K:
        keys = self._waiting.pop(flow)
        key = keys.popleft()
        self._size -= 1
        self._running[flow] += 1
        if keys:
            self._waiting[flow] = keys  # behind the other flows
        now = self._now()
        # The reported time begins with the first `get`: a process that waits for its lease has no workers.
        waited_s = now - max(self._dirty.pop(key), self._first_get or 0.0)
        self._processing[key] = now
        self._instruments.depth(self.name, self._size)
        self._instruments.started(self.name, waited_s=waited_s)
        return key

    def _delay_over(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)

    async def _wait_for_key(self) -> None:
        """Wait until a key may be available or the queue is shut down. A worker that is cancelled wakes another."""
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
