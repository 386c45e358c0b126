"""The delay after changes that only affect counts. The delay grows with the cost of a reconciliation.

A large update can change thousands of counts, one after the other. If a reconciliation takes 100 ms, it must not run
five times a second only to write new counts.
"""

from __future__ import annotations

from typing import Final

from informers.meta import ObjectKey

FACTOR: Final = 10
"""The delay is at least this number of times as long as the last reconciliation."""

LONGEST_S: Final = 2.0
"""The longest delay, in seconds."""

MAX_KEYS: Final = 1_000
"""The maximum number of remembered reconciliations. Above this number, all are forgotten."""


class Pace:
    """The delays of the sets or pools whose last reconciliation was expensive."""

    def __init__(self) -> None:
        self._delays: dict[ObjectKey, float] = {}

    def note(self, key: ObjectKey, seconds: float) -> None:
        """Record how long the last reconciliation of this set or pool took."""
        if len(self._delays) >= MAX_KEYS:
            self._delays.clear()
        if seconds > 0:
            self._delays[key] = min(FACTOR * seconds, LONGEST_S)

    def delay_s(self, key: ObjectKey, wanted_s: float) -> float:
        """Return the delay for a change with the delay `wanted_s`. A change that may require a write has no delay."""
        return wanted_s if wanted_s <= 0 else max(wanted_s, self._delays.get(key, 0.0))
