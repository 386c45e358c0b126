"""The health checks for probes: is this process alive, and is it ready?

A process that waits for the API server counts as alive, because a restart would not help.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from controller.server.http import Check
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue

log = structlog.get_logger()

INTERVAL_S = 0.5
WARN_OVER_S = 0.1
"""Above this lag, in seconds, a warning is logged. On a busy machine, a smaller lag is normal."""

WARN_EVERY_S = 60.0

UNHEALTHY_OVER_S = 5.0


class LoopMonitor:
    """Measures how late a timer of half a second fires. A shorter block is detected only by chance."""

    def __init__(self, observe: Callable[[float], None], *, clock: Callable[[], float]) -> None:
        """`observe` gets each lag in seconds. `clock` goes on while the loop is blocked, unlike the clock of uvloop."""
        self._observe = observe
        self._now = clock
        self._due_at: float | None = None
        """The time at which the timer should fire next, or None while the service does not run."""
        self._lag_s = 0.0
        self._warned_at = float("-inf")

    async def run(self) -> None:
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
        """Return None if the loop is healthy, or the reason, with the current delay of the timer in mind."""
        lag_s = max(self._lag_s, self.away_s())
        return f"the event loop was blocked for {lag_s:.1f}s" if lag_s > UNHEALTHY_OVER_S else None

    def _record(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._observe(lag_s)
        now = self._now()
        if lag_s > WARN_OVER_S and now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("event loop was blocked", lag_s=round(lag_s, 3), next_warning_after_s=WARN_EVERY_S)


SILENT_FOR_S = 300.0
"""The process is not alive if a watch is silent for this time: it should have restarted after two minutes."""

STUCK_FOR_S = 900.0
"""A worker is stuck after this time on one key, which exceeds a reconciliation with all its timeouts."""


def live_checks(
    monitor: LoopMonitor,
    informers: Sequence[SharedInformer[Any]],
    queues: Sequence[WorkQueue[ObjectKey]],
    clock: Callable[[], float],
) -> dict[str, Check]:
    return {
        "event-loop": monitor.check,
        "watches": lambda: _silent(informers, clock()),
        "workers": lambda: _stuck(queues, clock()),
    }


def ready_checks(
    informers: Sequence[SharedInformer[Any]],
    *,
    optional: Sequence[SharedInformer[Any]] = (),
    second_writer: Check = lambda: None,
) -> dict[str, Check]:
    """A process is ready with filled caches, also without the lease, if there is no `second_writer`."""
    return {"caches": lambda: _unsynced(informers, optional), "second-writer": second_writer}


def _silent(informers: Sequence[SharedInformer[Any]], now: float) -> str | None:
    for informer in informers:
        silent_s = informer.silent_s(now)
        if not informer.waiting_for and silent_s > SILENT_FOR_S:
            return f"the watch of {informer.resource.name} has been silent for {silent_s:.0f}s"
    return None


def _stuck(queues: Sequence[WorkQueue[ObjectKey]], now: float) -> str | None:
    for queue in queues:
        longest_s = queue.longest_s(now)
        if longest_s > STUCK_FOR_S:
            return f"a worker of {queue.name} has been busy with one key for {longest_s:.0f}s"
    return None


def _unsynced(informers: Sequence[SharedInformer[Any]], optional: Sequence[SharedInformer[Any]]) -> str | None:
    missing = [
        informer.resource.name
        for informer in informers
        if not informer.synced.is_set() and not (informer.missing and informer in optional)
    ]
    return f"waiting for the first list of {', '.join(missing)}" if missing else None
