"""The health checks for probes. They tell whether this process is alive, and whether this process is ready.

A process that waits for the API server counts as alive, because a restart would not help. A process does not count as
alive in these cases:

- Its event loop is blocked.
- A watch has received nothing for a long time and has not been restarted.
- A worker reconciles the same key for a very long time.
"""

from collections.abc import Callable, Sequence
from typing import Any

from controller.server.http import Check
from controller.server.loop_lag import LoopMonitor
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue

SILENT_FOR_S = 300.0
"""The process does not count as alive if a watch has received no data for this time in seconds.

A watch without data is restarted after two minutes. If there is no data after five minutes, the restart has not worked.
"""

STUCK_FOR_S = 900.0
"""A worker counts as stuck if it works on one key for this time in seconds.

A normal reconciliation takes less time, even if each of its requests times out.
"""


def live_checks(
    monitor: LoopMonitor,
    informers: Sequence[SharedInformer[Any]],
    queues: Sequence[WorkQueue[ObjectKey]],
    clock: Callable[[], float],
) -> dict[str, Check]:
    """Return the checks of /healthz and /livez by name. A check returns None, or the reason why it fails."""
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
    """Return the checks of /readyz by name. A process is ready when its caches are filled. A standby without the lease
    is ready too.

    If the API server does not serve the resource of an informer in `optional`, the check does not wait for this
    informer. A process that has stopped writing because of a second writer is not ready.
    """
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
