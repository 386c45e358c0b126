import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from controller.server.health import LoopMonitor

pytestmark = pytest.mark.looptime


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
