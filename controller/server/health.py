"""The health checks of the probes: whether this process is alive, and whether it is ready.

The checks do not depend on the health of the API server. A process that waits for its API server is alive, because a
restart would not help. A process is not alive in these cases:

- Its event loop is blocked.
- A watch has received nothing for a long time and has not been restarted.
- A worker reconciles the same key for a very long time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from controller.server.loop_lag import LoopMonitor
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue

SILENT_FOR_S = 300.0
"""After two minutes of silence, a watch is restarted. After five minutes, the restart evidently does not work."""

STUCK_FOR_S = 900.0
"""No pass takes this long, even if all its requests time out."""

Check = Callable[[], str | None]


def live_checks(
    monitor: LoopMonitor,
    informers: Sequence[SharedInformer[Any]],
    queues: Sequence[WorkQueue[ObjectKey]],
    clock: Callable[[], float],
) -> dict[str, Check]:
    """Return the checks of /healthz by name. A check returns None, or the reason if it fails."""
    return {
        "ping": lambda: None,
        "event-loop": monitor.check,
        "watches": lambda: _silent(informers, clock()),
        "workers": lambda: _stuck(queues, clock()),
    }


def ready_checks(informers: Sequence[SharedInformer[Any]]) -> dict[str, Check]:
    """Return the checks of /readyz by name. A standby process is ready too, because its caches are filled."""
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
