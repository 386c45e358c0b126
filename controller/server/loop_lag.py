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


class LoopMonitor:
    """A service that measures the lag of the event loop, with a health check (`check`) of the lag."""

    def __init__(self, observe: Callable[[float], None], *, clock: Callable[[], float]) -> None:
        """`observe` is called with each measured lag in seconds. `clock` must go on while the
        loop is blocked. The clock of uvloop does not.
        """
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
                self._record(self.away_s())
        finally:
            self._due_at = None

    def away_s(self) -> float:
        """Return for how long the loop has not answered, in seconds. Any thread may call it."""
        due_at = self._due_at
        return 0.0 if due_at is None else max(0.0, self._now() - due_at)

    def check(self) -> str | None:
        """Return None if the loop is healthy, or the reason if not.

        After a block, a probe may be answered before the timer fires. So the check also includes the current delay of
        the timer.
        """
        lag_s = max(self._lag_s, self.away_s())
        return f"the event loop was blocked for {lag_s:.1f}s" if lag_s > UNHEALTHY_OVER_S else None

    def _record(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._observe(lag_s)
        now = self._now()
        if lag_s > WARN_OVER_S and now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("event loop was blocked", lag_s=round(lag_s, 3), next_warning_after_s=WARN_EVERY_S)
