"""The health checks: a process that cannot reach the API server is alive. If a part of the process hangs, the process
is not alive.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.kubevirt.resources import VMIS
from controller.server.health import SILENT_FOR_S, STUCK_FOR_S, LoopMonitor, live_checks, ready_checks
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


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


# The lag of the event loop


class SimulatedLoop:
    """An event loop with a monitor. `block` advances the clock, as a callback that blocks the loop does."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.monitor = LoopMonitor(self.loop_lagged, clock=self.now)
        self._blocked_s = 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self._blocked_s

    def loop_lagged(self, seconds: float) -> None:
        self.lags.append(round(seconds, 6))

    def block(self, seconds: float) -> None:
        self._blocked_s += seconds


@asynccontextmanager
async def monitored() -> AsyncIterator[SimulatedLoop]:
    loop = SimulatedLoop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(loop.monitor.run())
        await asyncio.sleep(0.25)
        yield loop
        task.cancel()


async def test_a_block_at_the_time_of_a_measurement_is_recorded():
    async with monitored() as loop:
        loop.block(0.3)
        await asyncio.sleep(1)
        loop.block(0.02)
        await asyncio.sleep(1)
    assert loop.lags == [0.3, 0, 0.02, 0]


@pytest.mark.parametrize(
    ("block_s", "at_once", "measured"),
    [(6, "the event loop was blocked for 5.8s", "the event loop was blocked for 6.0s"), (2, None, None)],
)
async def test_a_loop_with_a_long_block_is_unhealthy_until_a_measurement_without_lag(
    block_s: float, at_once: str | None, measured: str | None
):
    async with monitored() as loop:
        loop.block(block_s)
        # The timer was due 0.25 s after the start of the block.
        assert loop.monitor.check() == at_once
        await asyncio.sleep(0.3)
        assert loop.monitor.check() == measured
        await asyncio.sleep(0.5)
        assert loop.monitor.check() is None


async def test_blocks_are_logged_at_most_once_a_minute():
    with capture_logs() as logs:
        async with monitored() as loop:
            for _ in range(100):
                loop.block(0.2)
                await asyncio.sleep(1)
    warnings = [line for line in logs if line["event"] == "event loop was blocked"]
    assert [line["log_level"] for line in warnings] == ["warning"] * 2
    assert warnings[0]["lag_s"] == 0.2
