"""Computes the delay before the next attempt for a key. `now` is always the time of a monotonic clock in seconds."""

from collections.abc import Callable, Hashable
from random import random  # noqa: TID251 - the only source of jitter; tests pass their own function
from typing import Protocol, TypeVar


class Backoff:
    """Delays from `initial_s` to `maximum_s` seconds. They start again `reset_after_s` after the last."""

    def __init__(
        self,
        *,
        initial_s: float,
        maximum_s: float,
        factor: float = 2.0,
        reset_after_s: float = 120.0,
        chance: Callable[[], float] = random,
    ) -> None:
        """Each failure multiplies the ceiling by `factor`. `chance`, in [0, 1), puts the delay below the ceiling."""
        if not 0 < initial_s <= maximum_s or factor < 1:
            raise ValueError("a backoff needs 0 < initial_s <= maximum_s and factor >= 1")
        self._initial_s = initial_s
        self._maximum_s = maximum_s
        self._factor = factor
        self._reset_after_s = reset_after_s
        self._chance = chance
        self._ceiling_s = initial_s
        self._over_at = float("-inf")

    def next(self, now: float) -> float:
        """Count one failure. Return the seconds to wait before the next attempt."""
        if now - self._over_at >= self._reset_after_s:
            self.reset()
        # Do not compute the ceiling from the number of failures: `factor` to the power of a large number overflows.
        self._ceiling_s = min(self._maximum_s, self._ceiling_s * self._factor)
        delay_s = self._initial_s + (self._ceiling_s - self._initial_s) * self._chance()
        self._over_at = now + delay_s
        return delay_s

    def reset(self) -> None:
        self._ceiling_s = self._initial_s


K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

LARGEST_EXPONENT = 64
"""Largest exponent of 2 in a delay. `2.0**1024` is an OverflowError, and delays have a maximum."""


class RateLimiter(Protocol[K_contra]):
    def delay(self, key: K_contra, now: float) -> float:
        """Count one more attempt for the key. Return the seconds that the key has to wait."""

    def forget(self, key: K_contra) -> None:
        """Set the attempts of the key back to 0, because it succeeded or will not be retried."""

    def retries(self, key: K_contra) -> int:
        """Return the number of attempts for the key since the last `forget` of the key."""


LONGEST_ITEM_DELAY_S = 1000.0


class ItemBackoff(RateLimiter[K]):
    """Delays each key by `initial_s` seconds, and twice as long at each further attempt, up to `maximum_s`."""

    def __init__(self, *, initial_s: float = 0.005, maximum_s: float = LONGEST_ITEM_DELAY_S) -> None:
        self._initial_s = initial_s
        self._maximum_s = maximum_s
        self._attempts: dict[K, int] = {}

    def delay(self, key: K, now: float) -> float:
        attempts = self._attempts.get(key, 0)
        self._attempts[key] = attempts + 1
        # The delay has no random part, because keys usually fail at different times. If many keys fail at the same
        # time, a token bucket makes their retries start at different times.
        return min(self._maximum_s, self._initial_s * 2.0 ** min(attempts, LARGEST_EXPONENT))

    def forget(self, key: K) -> None:
        self._attempts.pop(key, None)

    def retries(self, key: K) -> int:
        return self._attempts.get(key, 0)


class TokenBucket(RateLimiter[Hashable]):
    """Limits all keys together: `burst` attempts at once, then `rate_per_s`. The delay grows with each call."""

    def __init__(self, *, rate_per_s: float = 10.0, burst: int = 100) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError("a token bucket needs rate_per_s > 0 and burst >= 1")
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = float(burst)
        """The number of tokens in the bucket. -3 means that three callers have to wait for a token."""
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
        """Do nothing, because a token bucket does not store the attempts of a single key."""

    def retries(self, key: Hashable) -> int:
        return 0


class MaxOf(RateLimiter[K]):
    """A rate limiter that returns the longest delay of several limiters. Every limiter counts each attempt."""

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
    """As client-go: 5 ms doubling up to 1,000 s for each key, and 100 attempts at once and 10 a second for all."""
    return MaxOf(ItemBackoff(), TokenBucket())
