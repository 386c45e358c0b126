"""Measures the lag of the event loop. A large lag means that code blocks the loop or that the process lacks CPU time.

A timer runs every half second. The lag is the delay with which the timer fires. This costs so little that it always
runs. It detects every block of at least half a second, and a part of the shorter blocks. Frequent short blocks
therefore appear in the histogram.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger()

INTERVAL_S = 0.5

WARN_OVER_S = 0.1
"""Twice the time that code may block the loop. On a busy machine, a smaller lag is normal."""

WARN_EVERY_S = 60.0

UNHEALTHY_OVER_S = 5.0
"""With a larger lag, the lease may not be renewed in time."""


class LagInstruments(Protocol):
    """The metric of the loop lag."""

    def loop_lagged(self, seconds: float) -> None: ...


class LoopMonitor:
    """A service that measures the lag of the event loop, and the health check for it."""

    def __init__(
        self,
        *,
        instruments: LagInstruments,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock` is monotonic. The default is the clock of the running event loop."""
        self._instruments = instruments
        self._clock = clock
        self._due_at: float | None = None
        """The time at which the timer should fire; None while the service does not run."""
        self._lag_s = 0.0
        """The latest measurement."""
        self._warned_at = float("-inf")

    async def run(self) -> None:
        """Measure until cancelled."""
        try:
            while True:
                self._due_at = self._now() + INTERVAL_S
                await asyncio.sleep(INTERVAL_S)
                self._record(max(0.0, self._now() - self._due_at))
        finally:
            self._due_at = None

    def check(self) -> str | None:
        """Return the reason if the loop is not healthy, else None.

        A probe that is answered after a block also sees this block, even if the timer has not fired yet.
        """
        overdue_s = self._now() - self._due_at if self._due_at is not None else 0.0
        lag_s = max(self._lag_s, overdue_s)
        return f"the event loop was blocked for {lag_s:.1f}s" if lag_s > UNHEALTHY_OVER_S else None

    def _record(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._instruments.loop_lagged(lag_s)
        now = self._now()
        if lag_s > WARN_OVER_S and now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("event loop was blocked", lag_s=round(lag_s, 3), next_warning_after_s=WARN_EVERY_S)

    def _now(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()
