"""Delays between attempts that keep failing: exponential, with jitter, forgotten after a spell of health.

Every delay is drawn evenly from `initial_s` up to a ceiling that grows with each failure in a row and stops at
`maximum_s`. A fleet of clients whose server went away therefore spreads out from the first retry on, and no client
ever retries faster than `initial_s`, however the dice fall.

One object serves one activity, such as the list and watch of one resource. It does not sleep and reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from random import random  # noqa: TID251 - the one source of jitter; tests hand in their own


class Backoff:
    """Give the delay before the next attempt.

    Promises: `initial_s <= next(now) <= maximum_s`, and a start from the beginning once `reset_after_s` have passed
    since the last delay was over without another failure.
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
        """`chance` returns a number in [0, 1) and decides where in its range each delay falls."""
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
        """Count one failure, and return the seconds to wait before the next attempt.

        `now` is any clock that never goes back, and the same one each time.
        """
        if now - self._over_at >= self._reset_after_s:
            self.reset()
        # The ceiling is kept as seconds, not as a count of failures: a power of a large count overflows.
        self._ceiling_s = min(self._maximum_s, self._ceiling_s * self._factor)
        delay_s = self._initial_s + (self._ceiling_s - self._initial_s) * self._chance()
        self._over_at = now + delay_s
        return delay_s

    def reset(self) -> None:
        """Start over: the next failure is the first of its row."""
        self._ceiling_s = self._initial_s
