"""What the probes are told: alive without an API server, not alive when something stands still."""

from __future__ import annotations

import asyncio

from controller.kubevirt.resources import VMIS
from controller.server.health import SILENT_FOR_S, STUCK_FOR_S, live_checks, ready_checks
from controller.server.loop_lag import LoopMonitor
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue


class Quiet:
    def loop_lagged(self, seconds: float) -> None: ...


class Following:
    """An informer, as far as the probes look at it."""

    resource = VMIS

    def __init__(self, *, silent_s: float = 0.0, waiting_for: str = "") -> None:
        self._silent_s = silent_s
        self.waiting_for = waiting_for
        self.synced = asyncio.Event()

    def silent_s(self, now: float) -> float:
        return self._silent_s


def troubles(informer: Following, queue: WorkQueue[ObjectKey] | None = None, *, later_s: float = 0.0) -> set[str]:
    """The live checks that fail."""

    def clock() -> float:
        return asyncio.get_running_loop().time() + later_s

    queues = [] if queue is None else [queue]
    checks = live_checks(LoopMonitor(instruments=Quiet()), [informer], queues, clock)  # type: ignore[list-item]
    return {name for name, check in checks.items() if check() is not None}


async def test_all_is_well_while_watches_bring_something():
    assert troubles(Following(silent_s=SILENT_FOR_S - 1)) == set()


async def test_a_watch_that_is_silent_for_too_long_is_not_alive():
    assert troubles(Following(silent_s=SILENT_FOR_S + 1)) == {"watches"}


async def test_waiting_for_the_api_server_is_alive_however_long():
    assert troubles(Following(silent_s=SILENT_FOR_S * 100, waiting_for="connection refused")) == set()


async def test_a_worker_that_is_busy_with_one_key_for_ever_is_not_alive():
    queue: WorkQueue[ObjectKey] = WorkQueue("test")
    queue.add(ObjectKey("ns", "a"))
    key = await queue.get()
    assert troubles(Following(), queue, later_s=STUCK_FOR_S - 1) == set()
    assert troubles(Following(), queue, later_s=STUCK_FOR_S + 1) == {"workers"}
    queue.done(key)
    assert troubles(Following(), queue, later_s=STUCK_FOR_S + 1) == set()


async def test_ready_is_who_has_the_first_lists():
    informer = Following()
    checks = ready_checks([informer])  # type: ignore[list-item]
    assert checks["caches"]() == "waiting for the first list of virtualmachineinstances.kubevirt.io"
    informer.synced.set()
    assert checks["caches"]() is None
