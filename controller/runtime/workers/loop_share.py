"""The share of the event loop's time that each namespace may use.

All namespaces share one event loop. A plan for a very large object takes a part of a second, and a user can cause such
plans again and again. If a namespace has used too much time, its reconciliations wait. The reconciliations of other
namespaces continue.
"""

from collections.abc import Callable
from typing import Final

SHARE: Final = 0.5
"""The share of the event loop's time that one namespace may use in the long run."""

ALLOWANCE_S: Final = 1.0
"""The time, in seconds, that a namespace may use in addition to its share. If a namespace uses more, its
reconciliations wait. Most namespaces use less.
"""

MAX_NAMESPACES: Final = 10_000
"""The maximum number of stored namespaces. Above this number, namespaces with a used time of 0 are removed."""


class LoopShare:
    """The time that the reconciliations of each namespace have used. The function `now` returns seconds of a monotonic
    clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._used: dict[str, tuple[float, float]] = {}
        """For each namespace: the used time in seconds, and the time at which this value was computed. The used time
        shrinks by SHARE each second.
        """

    def spend(self, namespace: str, seconds: float) -> None:
        """Record that a reconciliation has blocked the loop for this time."""
        if seconds <= 0:
            return
        self._used[namespace] = (self._left(namespace) + seconds, self._now())
        if len(self._used) > MAX_NAMESPACES:
            self._used = {name: used for name, used in self._used.items() if self._left(name) > 0}

    def wait_s(self, namespace: str) -> float:
        """Return the time, in seconds, until the next reconciliation of this namespace may start."""
        return max(0.0, self._left(namespace) - ALLOWANCE_S) / SHARE

    def _left(self, namespace: str) -> float:
        seconds, at = self._used.get(namespace, (0.0, 0.0))
        return max(0.0, seconds - (self._now() - at) * SHARE)
