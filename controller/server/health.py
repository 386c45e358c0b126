"""What the probes ask: is this process alive, and is it ready. Never whether the API server is well.

A process that waits for its API server is alive: starting it anew would help nobody. One whose loop stands still,
whose watch has gone silent without noticing, or that works on one key for ever, is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from controller.server.loop_lag import LoopMonitor
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue

SILENT_FOR_S = 300.0
"""A silent watch ends itself after two minutes: five mean that this does not work."""

STUCK_FOR_S = 900.0
"""Longer than any pass can take whose requests all time out."""

Check = Callable[[], str | None]


def live_checks(
    monitor: LoopMonitor,
    informers: Sequence[SharedInformer[Any]],
    queues: Sequence[WorkQueue[ObjectKey]],
    clock: Callable[[], float],
) -> dict[str, Check]:
    """The named checks of /healthz: None is well, otherwise why not."""
    return {
        "ping": lambda: None,
        "event-loop": monitor.check,
        "watches": lambda: _silent(informers, clock()),
        "workers": lambda: _stuck(queues, clock()),
    }


def ready_checks(informers: Sequence[SharedInformer[Any]]) -> dict[str, Check]:
    """The named checks of /readyz. A standby is ready, too: its caches are warm."""
    return {"caches": lambda: _unsynced(informers)}


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


def _unsynced(informers: Sequence[SharedInformer[Any]]) -> str | None:
    missing = [informer.resource.name for informer in informers if not informer.synced.is_set()]
    return f"waiting for the first list of {', '.join(missing)}" if missing else None
