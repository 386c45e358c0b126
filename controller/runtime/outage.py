"""Retries while the API server fails: the delays of the keys whose last pass failed because of the server.

Such a failure is a server-side error: no answer, or an answer that the server cannot process requests now. The error
does not depend on the key. The key's own backoff doubles up to 15 minutes, so with that backoff the key might wait for
15 more minutes after the server has recovered. Therefore the delays after such errors are separate. A single key is
retried after at most a few seconds. A common rate limit applies to all keys together, so a failing server gets as few
requests for a thousand keys as for ten. The outage ends when a pass of a waiting key does not fail because of the
server. All other waiting keys are then retried at once.
"""

from __future__ import annotations

from informers.meta import ObjectKey
from informers.ratelimit import ItemBackoff, MaxOf, RateLimiter, TokenBucket
from informers.workqueue import WorkQueue

LONGEST_S = 3.0
"""The longest delay of a single key, without the common rate limit."""

TRIES_PER_S, TRIES_AT_ONCE = 2.0, 10
"""The rate limit for all keys together."""


class Outage:
    """The keys of one queue that wait for the API server, and their delays."""

    def __init__(self, queue: WorkQueue[ObjectKey]) -> None:
        self._queue = queue
        self._limiter = _limiter()
        self._waiting: set[ObjectKey] = set()
        """The keys that are retried at once after the outage. A key whose error had a Retry-After is not in this set:
        it waits for that time even if another key succeeds."""

    def wait(self, key: ObjectKey, *, at_least_s: float = 0.0) -> float:
        """Queue a key again whose pass failed because of the server. Returns the delay in seconds.

        `at_least_s` is the server's Retry-After, or 0.
        """
        if at_least_s > 0:
            self._waiting.discard(key)
        else:
            self._waiting.add(key)
        return self._queue.add_rate_limited(key, at_least_s=at_least_s, limiter=self._limiter)

    def end(self, key: ObjectKey) -> None:
        """Handle a pass of the key that did not fail because of the server. If the key was waiting for the server, the
        outage is over, and all waiting keys are queued at once.
        """
        if key not in self._waiting:
            self._limiter.forget(key)
            return
        self._waiting.discard(key)
        for other in self._waiting:
            self._queue.add(other)
        self._waiting.clear()
        # A new limiter: the slots that were reserved during this outage must not delay the keys of the next outage.
        self._limiter = _limiter()


def _limiter() -> RateLimiter[ObjectKey]:
    return MaxOf(ItemBackoff(maximum_s=LONGEST_S), TokenBucket(rate_per_s=TRIES_PER_S, burst=TRIES_AT_ONCE))
