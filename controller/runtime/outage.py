"""Retries while the API server fails. `Outage` chooses the delay for each key whose last pass failed because of the
server.

The server causes the failure of a pass in two cases: the server does not answer, or its answer says that it cannot
process requests now. Such an error does not depend on the key. The backoff of a key doubles up to 15 minutes. With this
backoff, a key might wait for 15 more minutes after the server has recovered. Therefore the delays here are separate
from the backoff of the key:

- The delay of a single key is at most a few seconds.
- A common rate limit applies to all keys together. So the request rate does not grow with the number of keys.

The outage ends when a pass of a waiting key does not fail because of the server. Then all other waiting keys are
retried at once.
"""

from __future__ import annotations

from informers.meta import ObjectKey
from informers.ratelimit import ItemBackoff, MaxOf, RateLimiter, TokenBucket
from informers.workqueue import WorkQueue

LONGEST_S = 3.0
"""The maximum delay of a single key, in seconds. The common rate limit may cause a longer delay."""

TRIES_PER_S, TRIES_AT_ONCE = 2.0, 10
"""The rate limit for all keys together: the retries per second, and the number of retries that may start at once."""


class Outage:
    """The keys of one queue that wait for the API server, and their delays."""

    def __init__(self, queue: WorkQueue[ObjectKey]) -> None:
        self._queue = queue
        self._limiter = _limiter()
        self._waiting: set[ObjectKey] = set()
        """The keys that are retried at once when the outage ends. A key whose error had a Retry-After is not in this
        set. Such a key waits for the time in the Retry-After, even if the outage ends earlier."""

    def wait(self, key: ObjectKey, *, at_least_s: float = 0.0) -> float:
        """Queue a key again after its pass failed because of the server, and return the delay in seconds.

        `at_least_s` is the Retry-After of the server in seconds, or 0 if the server sent none.
        """
        if at_least_s > 0:
            self._waiting.discard(key)
        else:
            self._waiting.add(key)
        return self._queue.add_rate_limited(key, at_least_s=at_least_s, limiter=self._limiter)

    def end(self, key: ObjectKey) -> None:
        """Handle a pass of the key that did not fail because of the server.

        If the key was waiting for the server, end the outage and queue all other waiting keys at once.
        """
        if key not in self._waiting:
            self._limiter.forget(key)
            return
        self._waiting.discard(key)
        for other in self._waiting:
            self._queue.add(other)
        self._waiting.clear()
        # The old limiter has reserved slots for retries of this outage. These slots must not delay the keys of the next
        # outage, so a new limiter is created.
        self._limiter = _limiter()


def _limiter() -> RateLimiter[ObjectKey]:
    return MaxOf(ItemBackoff(maximum_s=LONGEST_S), TokenBucket(rate_per_s=TRIES_PER_S, burst=TRIES_AT_ONCE))
