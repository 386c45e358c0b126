"""Measures the lag of the event loop. A large lag means that code blocks the loop or that the process lacks CPU time.

A timer fires every half second. The lag is the time by which the timer fires too late. The timer detects every block of
at least half a second. It detects a shorter block only if the timer should fire during the block.
"""

import asyncio
from collections.abc import Callable

import structlog

log = structlog.get_logger()

INTERVAL_S = 0.5
WARN_OVER_S = 0.1
"""Above this lag, in seconds, a warning is logged. On a busy machine, a smaller lag is normal."""

WARN_EVERY_S = 60.0

UNHEALTHY_OVER_S = 5.0
"""Above this lag, in seconds, the process is not healthy.

With a larger lag, the process may renew the lease too late.
"""


class LoopMonitor:
    """A service that measures the lag of the event loop, with a health check (`check`) of the lag."""

    def __init__(self, observe: Callable[[float], None], *, clock: Callable[[], float]) -> None:
        """`observe` is called with each measured lag in seconds. `clock` is the clock of the event loop."""
        self._observe = observe
        self._now = clock
        self._due_at: float | None = None
        """The time at which the timer should fire next, or None while the service does not run."""
        self._lag_s = 0.0
        self._warned_at = float("-inf")

    async def run(self) -> None:
        """Measure the lag every INTERVAL_S seconds until cancelled."""
        try:
            while True:
                self._due_at = self._now() + INTERVAL_S
                await asyncio.sleep(INTERVAL_S)
                self._record(max(0.0, self._now() - self._due_at))
        finally:
            self._due_at = None

    def check(self) -> str | None:
        """Return None if the loop is healthy, or the reason if not.

        After a block, a probe may be answered before the timer fires. So the check also includes the current delay of
        the timer.
        """
        overdue_s = self._now() - self._due_at if self._due_at is not None else 0.0
        lag_s = max(self._lag_s, overdue_s)
        return f"the event loop was blocked for {lag_s:.1f}s" if lag_s > UNHEALTHY_OVER_S else None

    def _record(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._observe(lag_s)
        now = self._now()
        if lag_s > WARN_OVER_S and now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("event loop was blocked", lag_s=round(lag_s, 3), next_warning_after_s=WARN_EVERY_S)
