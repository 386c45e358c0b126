"""Retries while the API server fails: it does not answer, or answers 429, 503 or 504 (a server-side failure).

The backoff of a key, which doubles up to 15 minutes, would go on after the end of such an outage. Instead:

- Only a few keys, called probes, are retried in a second, also if thousands of keys wait.
- The next probe is the key with the fewest failures: it does not wait for keys that always fail.
- If only one key waits, the key is retried after at most a few seconds.
- The outage ends when a waiting key is reconciled without a server-side failure. All other waiting keys are then
  retried within `LONGEST_S`, one after the other.

If the server has served another key within `RECENT_S`, a failed key is retried alone, after at most `LONGEST_SINGLE_S`,
or later if hundreds of keys fail. So one object does not delay the others.
"""

import asyncio

from informers.meta import ObjectKey
from informers.ratelimit import ItemBackoff, MaxOf, TokenBucket
from informers.workqueue import WorkQueue

LONGEST_S = 3.0
"""The maximum delay, in seconds, if only one key waits. If many keys wait, the delays are longer."""

PROBES_PER_S, PROBES_AT_ONCE = 2.0, 10
RECENT_S = 5.0
SINGLE_FAILURE_S, LONGEST_SINGLE_S = 1.0, 30.0
"""The shortest and the longest delay of a key, in seconds, if the server serves other keys."""


EARLY_S = 0.002
"""The time, in seconds, by which a timer of uvloop may be early."""

PROBED = float("inf")
"""The value in `_waiting` of a key that a reconciliation tests now, as a probe of the server."""


class Outage:
    """The keys of one queue that wait for the API server. A few of them are retried, as probes."""

    def __init__(self, queue: WorkQueue[ObjectKey]) -> None:
        self._queue = queue
        self._backoff = ItemBackoff[ObjectKey](maximum_s=LONGEST_S)
        alone = ItemBackoff[ObjectKey](initial_s=SINGLE_FAILURE_S, maximum_s=LONGEST_SINGLE_S)
        self._alone = MaxOf[ObjectKey](alone, TokenBucket())
        self._probes = TokenBucket(rate_per_s=PROBES_PER_S, burst=PROBES_AT_ONCE)
        self._served_at = float("-inf")
        self._waiting: dict[ObjectKey, float] = {}
        """The earliest time of the next probe, by key. A key with a Retry-After is not here: it is retried then."""

        self._timer: asyncio.TimerHandle | None = None
        self._probe_from = 0.0
        """The rate limit allows no probe before this time."""

    def wait(self, key: ObjectKey, *, at_least_s: float = 0.0) -> float:
        """Retry a key after a server-side failure. Return the smallest delay, at least the Retry-After `at_least_s`."""
        self._waiting.pop(key, None)
        now = asyncio.get_running_loop().time()
        if at_least_s > 0:
            return self._queue.add_rate_limited(key, at_least_s=at_least_s, limiter=self._backoff)
        if now - self._served_at < RECENT_S:
            return self._queue.add_rate_limited(key, limiter=self._alone)
        delay_s = self._backoff.delay(key, now)
        self._waiting[key] = now + delay_s
        self._schedule_probe()
        return delay_s

    def delayed(self, now: float) -> dict[ObjectKey, float]:
        """Return the keys that wait for their next probe, with the seconds until the probe is due."""
        return {key: max(0.0, at - now) for key, at in self._waiting.items() if at != PROBED}

    def end(self, key: ObjectKey, *, served: bool) -> None:
        """Report a reconciliation without a server-side failure: a waiting key that was `served` ends the outage."""
        is_waiting = key in self._waiting
        if served or is_waiting:
            self._served_at = asyncio.get_running_loop().time()
        self._backoff.forget(key)
        self._alone.forget(key)
        if not is_waiting:
            return
        del self._waiting[key]
        pause_s = LONGEST_S / max(len(self._waiting), 1)
        for number, other in enumerate(self._waiting):
            self._queue.add_after(other, number * pause_s)
            self._backoff.forget(other)
        self._waiting.clear()
        self._probes = TokenBucket(rate_per_s=PROBES_PER_S, burst=PROBES_AT_ONCE)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule_probe(self) -> None:
        first = min(self._waiting.values(), default=PROBED)
        if first == PROBED:
            return
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._probe_from = loop.time() + self._probes.reserve(loop.time())
        else:
            self._timer.cancel()
        self._timer = loop.call_at(max(first, self._probe_from), self._probe)

    def _probe(self) -> None:
        """Queue the due key with the fewest failures. Without one, the next timer uses the token of this probe."""
        now = asyncio.get_running_loop().time()
        ready = [key for key, at in self._waiting.items() if at <= now + EARLY_S]
        if ready:
            self._timer = None
            key = min(ready, key=self._backoff.retries)
            self._waiting[key] = PROBED
            self._queue.add_after(key, 0.0)
        self._schedule_probe()
