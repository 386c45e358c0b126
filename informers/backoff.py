"""A backoff computes the delay after each failed attempt. The delays are random and grow with each failure.

Because of the random delays, the clients of a failing server do not all retry at once.

One `Backoff` object serves one activity, such as the list and watch of one resource. The object does not sleep and
reads no clock.
"""

from collections.abc import Callable
from random import random  # noqa: TID251 - the only source of jitter; tests pass their own function


class Backoff:
    """The backoff of one activity. `next` returns the delay before the next attempt.

    Every delay is at least `initial_s` and at most `maximum_s` seconds. If the last delay ended at least
    `reset_after_s` seconds ago, `next` starts again with a short delay.
    """

    def __init__(
        self,
        *,
        initial_s: float,
        maximum_s: float,
        factor: float = 2.0,
        reset_after_s: float = 120.0,
        chance: Callable[[], float] = random,
    ) -> None:
        """Create a backoff.

        At each failure, the ceiling is multiplied by `factor`. `chance` returns a random number in [0, 1). If the
        number is 0, the delay is `initial_s`. If the number is near 1, the delay is near the ceiling.
        """
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
        """Count one failure. Return the seconds to wait before the next attempt.

        The argument `now` is the time of a monotonic clock in seconds. Every call must use the same clock.
        """
        if now - self._over_at >= self._reset_after_s:
            self.reset()
        # Do not compute the ceiling from the number of failures: `factor` to the power of a large number overflows.
        self._ceiling_s = min(self._maximum_s, self._ceiling_s * self._factor)
        delay_s = self._initial_s + (self._ceiling_s - self._initial_s) * self._chance()
        self._over_at = now + delay_s
        return delay_s

    def reset(self) -> None:
        self._ceiling_s = self._initial_s
