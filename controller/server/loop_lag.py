"""Measures how late the event loop is: the one signal that tells that something blocks it, or that the CPU is short.

A timer is set twice a second, and how much too late it comes is the lag. That is cheap enough to run at rest, and
sees every block of half a second and its share of shorter ones: what happens often shows in the histogram.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger()

INTERVAL_S = 0.5

WARN_OVER_S = 0.1
"""Twice what any piece of work here may take; less is noise on a busy machine."""

WARN_EVERY_S = 60.0

UNHEALTHY_OVER_S = 5.0
"""From here on, renewals of the lease are at risk."""


class LagInstruments(Protocol):
    def loop_lagged(self, seconds: float) -> None: ...


class LoopMonitor:
    """A service that measures, and the health check that goes with it."""

    def __init__(
        self,
        *,
        instruments: LagInstruments,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock` is monotonic; the running loop's where none is given."""
        self._instruments = instruments
        self._clock = clock
        self._due_at: float | None = None
        """When the timer should come; None while nothing is measured."""
        self._lag_s = 0.0
        """The latest measurement."""
        self._warned_at = float("-inf")

    async def run(self) -> None:
        """Measure, for ever."""
        try:
            while True:
                self._due_at = self._now() + INTERVAL_S
                await asyncio.sleep(INTERVAL_S)
                self._measured(max(0.0, self._now() - self._due_at))
        finally:
            self._due_at = None

    def check(self) -> str | None:
        """Why the loop is not healthy; None when it is. For whoever gets a turn after a block, such as a probe."""
        overdue_s = self._now() - self._due_at if self._due_at is not None else 0.0
        lag_s = max(self._lag_s, overdue_s)
        return f"the event loop was blocked for {lag_s:.1f}s" if lag_s > UNHEALTHY_OVER_S else None

    def _measured(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._instruments.loop_lagged(lag_s)
        now = self._now()
        if lag_s > WARN_OVER_S and now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("event loop was blocked", lag_s=round(lag_s, 3), next_warning_after_s=WARN_EVERY_S)

    def _now(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()
