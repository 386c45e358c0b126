"""Rate limiters: they compute the delay before the next attempt for a key.

A limiter has three methods: `delay`, `forget` and `retries`. The work queue asks the limiter for the delay of each
retry. `MaxOf` combines several limiters: it asks all of them and takes the longest delay.

A limiter does not sleep and reads no clock. `now` is the time of a monotonic clock in seconds.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

LARGEST_EXPONENT = 64
"""Limit for the exponent of 2: a larger one is never useful, and 2.0**1024 raises OverflowError."""


class RateLimiter(Protocol[K_contra]):
    """Computes how long a key waits before its next attempt."""

    def delay(self, key: K_contra, now: float) -> float:
        """Count one more attempt for the key. Return the seconds that the key has to wait."""

    def forget(self, key: K_contra) -> None:
        """Delete the count of the key, because the key succeeded or is not retried. Its next failure is its first."""

    def retries(self, key: K_contra) -> int:
        """Number of attempts since the last `forget` of the key."""


class ItemBackoff(RateLimiter[K]):
    """A separate delay for each key: `initial_s` at first, doubled with every attempt, at most `maximum_s`."""

    def __init__(self, *, initial_s: float = 0.005, maximum_s: float = 1000.0) -> None:
        self._initial_s = initial_s
        self._maximum_s = maximum_s
        self._attempts: dict[K, int] = {}
        """Number of attempts for each key that failed and was not forgotten afterwards."""

    def delay(self, key: K, now: float) -> float:
        attempts = self._attempts.get(key, 0)
        self._attempts[key] = attempts + 1
        # No jitter: keys fail at different times, and a token bucket spreads retries if many keys fail at once.
        return min(self._maximum_s, self._initial_s * 2.0 ** min(attempts, LARGEST_EXPONENT))

    def forget(self, key: K) -> None:
        self._attempts.pop(key, None)

    def retries(self, key: K) -> int:
        return self._attempts.get(key, 0)


class TokenBucket(RateLimiter[Hashable]):
    """A limit for all keys together: `burst` attempts at once, then `rate_per_s` attempts a second.

    A reservation never fails. The caller waits for the returned delay, which grows while the bucket is empty.
    """

    def __init__(self, *, rate_per_s: float = 10.0, burst: int = 100) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError("a token bucket needs rate_per_s > 0 and burst >= 1")
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = float(burst)
        """Tokens in the bucket. A negative number counts the reservations that are still waiting."""
        self._filled_at = float("-inf")

    def reserve(self, now: float) -> float:
        """Take one token. Return the seconds until the token may be used."""
        if now > self._filled_at:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate_per_s)
            self._filled_at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate_per_s)

    def delay(self, key: Hashable, now: float) -> float:
        return self.reserve(now)

    def forget(self, key: Hashable) -> None:
        """Does nothing: a token bucket stores nothing for a single key."""

    def retries(self, key: Hashable) -> int:
        return 0


class MaxOf(RateLimiter[K]):
    """The longest delay of several limiters. Every limiter counts every attempt."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        if not limiters:
            raise ValueError("MaxOf needs at least one limiter")
        self._limiters = limiters

    def delay(self, key: K, now: float) -> float:
        return max([limiter.delay(key, now) for limiter in self._limiters])

    def forget(self, key: K) -> None:
        for limiter in self._limiters:
            limiter.forget(key)

    def retries(self, key: K) -> int:
        return max([limiter.retries(key) for limiter in self._limiters])


def default_rate_limiter() -> RateLimiter[Hashable]:
    """The default of client-go: for each key 5 ms, doubled up to 1,000 s; for all keys 10 a second, burst 100."""
    return MaxOf(ItemBackoff(), TokenBucket())
