"""The health checks: a process that cannot reach the API server is alive. If a part of the process hangs, the process
is not alive.
"""

import asyncio
from typing import Any

import pytest

from controller.kubevirt.resources import VMIS
from controller.server.health import SILENT_FOR_S, STUCK_FOR_S, LoopMonitor, live_checks, ready_checks
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue


class FakeInformer:
    """The part of an informer that the checks read."""

    resource = VMIS

    def __init__(self, *, silent_s: float = 0.0, waiting_for: str = "") -> None:
        self._silent_s = silent_s
        self.waiting_for = waiting_for
        self.synced = asyncio.Event()
        self.missing = False

    def silent_s(self, now: float) -> float:
        return self._silent_s


def failing_checks(
    informer: FakeInformer, queue: WorkQueue[ObjectKey] | None = None, *, later_s: float = 0.0
) -> set[str]:
    """The names of the failing liveness checks."""

    def clock() -> float:
        return asyncio.get_running_loop().time() + later_s

    queues = [] if queue is None else [queue]
    checks = live_checks(LoopMonitor(lambda _: None, clock=clock), [informer], queues, clock)  # type: ignore[list-item]
    return {name for name, check in checks.items() if check() is not None}


@pytest.mark.parametrize(
    ("informer", "failing"),
    [
        pytest.param({"silent_s": SILENT_FOR_S - 1}, set(), id="the watch receives events"),
        pytest.param({"silent_s": SILENT_FOR_S + 1}, {"watches"}, id="the watch is silent"),
        pytest.param({"silent_s": SILENT_FOR_S * 9, "waiting_for": "refused"}, set(), id="no API server answers"),
    ],
)
async def test_only_a_silent_watch_fails_the_check(informer: dict[str, Any], failing: set[str]):
    assert failing_checks(FakeInformer(**informer)) == failing


async def test_a_worker_that_is_busy_with_one_key_for_too_long_fails_the_check():
    queue: WorkQueue[ObjectKey] = WorkQueue("test")
    queue.add(ObjectKey("ns", "a"))
    key = await queue.get()
    assert failing_checks(FakeInformer(), queue, later_s=STUCK_FOR_S - 1) == set()
    assert failing_checks(FakeInformer(), queue, later_s=STUCK_FOR_S + 1) == {"workers"}
    queue.done(key)
    assert failing_checks(FakeInformer(), queue, later_s=STUCK_FOR_S + 1) == set()


async def test_a_process_is_ready_without_the_list_of_an_optional_kind_that_is_not_served():
    required, optional = FakeInformer(), FakeInformer()
    checks = ready_checks([required, optional], optional=[optional])  # type: ignore[list-item]
    required.synced.set()
    assert checks["caches"]() is not None
    optional.missing = True
    assert checks["caches"]() is None
    required.synced.clear()
    required.missing = True
    assert checks["caches"]() is not None, "the process needs the list of the required kind"
