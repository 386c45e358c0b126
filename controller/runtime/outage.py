"""Keys whose last pass failed on the server: it did not answer, or answered that it cannot. No failure of theirs.

Their own backoff, which doubles up to a quarter of an hour, would go on for as long again when the server is back. So
they wait here, where each key is tried after at most a few seconds, and all of them together only a few times a
second: a server that is gone is asked as rarely for a thousand keys as for ten. The first key that gets through tells
that the server is well, and takes all others along.
"""

from __future__ import annotations

from informers.meta import ObjectKey
from informers.ratelimit import ItemBackoff, MaxOf, RateLimiter, TokenBucket
from informers.workqueue import WorkQueue

LONGEST_S = 3.0
"""How long one key alone waits at most."""

TRIES_PER_S, TRIES_AT_ONCE = 2.0, 10
"""For all keys together."""


class Outage:
    """The keys of one queue that wait for the server. Says when to try them, and knows nothing of what they need."""

    def __init__(self, queue: WorkQueue[ObjectKey]) -> None:
        self._queue = queue
        self._limiter = _limiter()
        self._waiting: set[ObjectKey] = set()
        """Without those for which the server named a time itself: it has to be kept, whoever else gets through."""

    def wait(self, key: ObjectKey, *, at_least_s: float = 0.0) -> float:
        """The key's pass failed on the server: have it tried again, and return the delay.

        `at_least_s` is the server's own Retry-After.
        """
        if at_least_s > 0:
            self._waiting.discard(key)
        else:
            self._waiting.add(key)
        return self._queue.add_rate_limited(key, at_least_s=at_least_s, limiter=self._limiter)

    def got_through(self, key: ObjectKey) -> None:
        """The key's pass did not fail on the server. If the one before it did, that outage is over, for all keys."""
        if key not in self._waiting:
            self._limiter.forget(key)
            return
        self._waiting.discard(key)
        for other in self._waiting:
            self._queue.add(other)
        self._waiting.clear()
        # What was reserved during the outage must not delay whoever fails next.
        self._limiter = _limiter()


def _limiter() -> RateLimiter[ObjectKey]:
    return MaxOf(ItemBackoff(maximum_s=LONGEST_S), TokenBucket(rate_per_s=TRIES_PER_S, burst=TRIES_AT_ONCE))
