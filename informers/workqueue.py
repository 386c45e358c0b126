"""The work queue: which keys need work, handed out once each, fairly, and never twice at the same time.

What it promises, as client-go's does:

- *Fair*: keys are handed out in the order in which they were added.
- *Stingy*: a key waits once, however often it is added before somebody takes it.
- *Never at once*: a key that is added while a worker has it waits until that worker says `done`, and is handed out
  again afterwards. So every `add` is followed by a run that started after it.
- *Any number of producers and workers*, all on one event loop. Everything but `get` and iteration is synchronous.
- *Shut down*: nothing more goes in, delays are dropped, iteration ends; keys in hand are finished by whoever has them.

A worker is `async for key in queue:` with `queue.done(key)` in a `finally`. The queue knows nothing of Kubernetes, and
nothing of failures but the delay that its rate limiter gives a key. A worker that is cancelled while it waits takes
no key with it, and the wake-up that was meant for it goes to the next one.

Time is the running loop's. Questions about age take `now`, which is `loop.time()`.
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
    """There is nothing more to get: the queue was shut down."""


class WorkQueue(Generic[K]):
    """See the module's contract. `name` labels its metrics."""

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
        """Keys that need a run, each with the time of its first add since the last one began, oldest first."""

        self._waiting: deque[K] = deque()
        """What the next `get` takes. Every key here is dirty, is here once, and is not in hand."""

        self._in_hand: dict[K, float] = {}
        """Keys that a worker has, each with the time it got it. Those that are dirty too run again after `done`."""

        self._delayed: dict[K, asyncio.TimerHandle] = {}
        """At most one timer a key: the earliest that was asked for. The loop's heap of timers is our heap."""

        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut = False

    def __len__(self) -> int:
        """How many keys wait for a worker. Neither those in hand nor those delayed."""
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Ask for a run of the key that starts after this call. Ignored once the queue is shut down."""
        if self._shut or key in self._dirty:
            return
        self._dirty[key] = self._now()
        self._instruments.added(self.name)
        if key not in self._in_hand:
            self._enqueue(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add the key when the delay has passed. Of several delays of one key, the one that ends first counts."""
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
        """Add the key again after a failure, when the rate limiter allows it; return that delay.

        `at_least_s` is a delay that somebody else asked for, such as a server's Retry-After. `limiter` decides in place
        of the queue's own, for failures of another kind; what it counts, its owner makes it forget.
        """
        delay_s = max(at_least_s, (limiter or self._limiter).delay(key, self._now()))
        self._instruments.retried(self.name)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """The key is well: its next failure counts as its first. Does not take the key out of the queue."""
        self._limiter.forget(key)

    def retries(self, key: K) -> int:
        """How often the key was added rate-limited since it was last forgotten."""
        return self._limiter.retries(key)

    async def get(self) -> K:
        """Wait for a key and take it in hand; call `done` with it afterwards, whatever happened.

        Raises QueueShutDown when there will be no more.
        """
        # Lets the loop turn between two keys: runs that find nothing to wait for must not hold up everything else.
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
        """The worker is through with the key, well or not. Raises ValueError for a key that nobody has in hand."""
        if key not in self._in_hand:
            raise ValueError(f"done({key!r}) without a get")
        self._instruments.finished(self.name, worked_s=self._now() - self._in_hand.pop(key))
        if key in self._dirty:
            self._enqueue(key)

    def shut_down(self, *, drain: bool = False) -> None:
        """Take nothing more in. Waiting keys are dropped; with `drain` they are still handed out first.

        May be called again, to cut a drain short.
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
        """How long the key that waits longest for a run has waited; 0 when none does.

        A key that was added again while a worker has it waits too: a worker that hangs shows here.
        """
        return max(0.0, now - next(iter(self._dirty.values()), now))

    def unfinished_s(self, now: float) -> float:
        """How long the keys in hand have been worked on so far, summed (`workqueue_unfinished_work_seconds`)."""
        return sum(now - since for since in self._in_hand.values())

    def longest_s(self, now: float) -> float:
        """The longest of them (`workqueue_longest_running_processor_seconds`)."""
        return max((now - since for since in self._in_hand.values()), default=0.0)

    def _enqueue(self, key: K) -> None:
        self._waiting.append(key)
        self._instruments.depth(self.name, len(self._waiting))
        self._wake_getter()

    def _take(self) -> K:
        key = self._waiting.popleft()
        now = self._now()
        waited_s = now - self._dirty.pop(key)
        self._in_hand[key] = now
        self._instruments.depth(self.name, len(self._waiting))
        self._instruments.started(self.name, waited_s=waited_s)
        return key

    def _delay_over(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)

    async def _wait_for_key(self) -> None:
        """Sleep until there may be a key. A cancelled sleeper hands its wake-up on: it may have been the only one."""
        waiter = asyncio.get_running_loop().create_future()
        self._getters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            with suppress(ValueError):  # a waker that came after the cancellation has dropped it already
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
