"""When to try a key again, and how often to do something at all.

A limiter is a policy of three methods, so that the work queue knows nothing of retries but their delay. Limiters
combine: `MaxOf` asks each and takes the longest delay.

None of them sleeps or reads a clock: `now` is a number of seconds on any clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

LARGEST_EXPONENT = 64
"""2**64 times any sensible delay is beyond any sensible maximum; 2.0**1024 would raise OverflowError."""


class RateLimiter(Protocol[K_contra]):
    """Decides how long a key waits before it is tried again."""

    def delay(self, key: K_contra, now: float) -> float:
        """Count one more attempt for the key, and return the seconds that it waits."""

    def forget(self, key: K_contra) -> None:
        """The key succeeded, or is given up: its next failure is its first. Nothing of it is kept."""

    def retries(self, key: K_contra) -> int:
        """How many attempts were counted since the key was last forgotten."""


class ItemBackoff(RateLimiter[K]):
    """Each key by itself: `initial_s`, doubled with every attempt, up to `maximum_s`."""

    def __init__(self, *, initial_s: float = 0.005, maximum_s: float = 1000.0) -> None:
        self._initial_s = initial_s
        self._maximum_s = maximum_s
        self._attempts: dict[K, int] = {}
        """Holds only keys that failed and were not forgotten since."""

    def delay(self, key: K, now: float) -> float:
        attempts = self._attempts.get(key, 0)
        self._attempts[key] = attempts + 1
        # No jitter: keys fail one by one, and what spreads a burst of them is the bucket beside this limiter.
        return min(self._maximum_s, self._initial_s * 2.0 ** min(attempts, LARGEST_EXPONENT))

    def forget(self, key: K) -> None:
        self._attempts.pop(key, None)

    def retries(self, key: K) -> int:
        return self._attempts.get(key, 0)


class TokenBucket(RateLimiter[Hashable]):
    """All keys together: `burst` at once, then `rate_per_s`.

    Every reservation is granted, later and later: whoever reserves waits that long and then goes ahead.
    """

    def __init__(self, *, rate_per_s: float = 10.0, burst: int = 100) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError("a token bucket needs rate_per_s > 0 and burst >= 1")
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = float(burst)
        """Below zero by the number of reservations that still wait."""
        self._filled_at = float("-inf")

    def reserve(self, now: float) -> float:
        """Take one token, and return the seconds until it may be used."""
        if now > self._filled_at:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate_per_s)
            self._filled_at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate_per_s)

    def delay(self, key: Hashable, now: float) -> float:
        return self.reserve(now)

    def forget(self, key: Hashable) -> None:
        """A bucket knows no keys."""

    def retries(self, key: Hashable) -> int:
        return 0


class MaxOf(RateLimiter[K]):
    """The strictest of several limiters. Each of them counts each attempt."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        if not limiters:
            raise ValueError("MaxOf needs a limiter")
        self._limiters = limiters

    def delay(self, key: K, now: float) -> float:
        return max([limiter.delay(key, now) for limiter in self._limiters])

    def forget(self, key: K) -> None:
        for limiter in self._limiters:
            limiter.forget(key)

    def retries(self, key: K) -> int:
        return max([limiter.retries(key) for limiter in self._limiters])


def default_rate_limiter() -> RateLimiter[Hashable]:
    """What client-go's controllers use: 5 ms doubling to 1000 s for each key, and 10 a second with a burst of 100."""
    return MaxOf(ItemBackoff(), TokenBucket())
