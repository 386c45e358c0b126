from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from controller.server.loop_lag import LoopMonitor

pytestmark = pytest.mark.looptime


class World:
    """A loop that `block` holds up: the clock goes on, and no timer comes."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.monitor = LoopMonitor(instruments=self, clock=self.now)
        self._blocked_s = 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self._blocked_s

    def loop_lagged(self, seconds: float) -> None:
        self.lags.append(round(seconds, 6))

    def block(self, seconds: float) -> None:
        self._blocked_s += seconds


@asynccontextmanager
async def monitored() -> AsyncIterator[World]:
    world = World()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.monitor.run())
        await asyncio.sleep(0.25)
        yield world
        task.cancel()


async def test_an_idle_loop_is_measured_twice_a_second_and_is_in_time():
    async with monitored() as world:
        await asyncio.sleep(10)
    assert world.lags == [0] * 20
    assert world.monitor.check() is None


async def test_what_blocks_the_loop_over_the_time_of_a_measurement_shows():
    async with monitored() as world:
        world.block(0.3)
        await asyncio.sleep(1)
        world.block(0.02)
        await asyncio.sleep(1)
    assert world.lags == [0.3, 0, 0.02, 0]


async def test_a_loop_that_was_blocked_for_long_is_unhealthy_until_it_turns_in_time_again():
    async with monitored() as world:
        world.block(6)
        assert world.monitor.check() == "the event loop was blocked for 5.8s"  # the timer was due after 0.25 of them
        await asyncio.sleep(0.3)
        assert world.monitor.check() == "the event loop was blocked for 6.0s"
        await asyncio.sleep(0.5)
        assert world.monitor.check() is None


async def test_a_short_block_is_not_unhealthy():
    async with monitored() as world:
        world.block(2)
        assert world.monitor.check() is None
        await asyncio.sleep(0.3)
        assert world.monitor.check() is None


async def test_a_monitor_that_does_not_run_finds_nothing():
    world = World()
    assert world.monitor.check() is None
    async with monitored() as stopped:
        pass
    stopped.block(60)
    assert stopped.monitor.check() is None


async def test_a_block_is_warned_of_once_a_minute():
    with capture_logs() as logs:
        async with monitored() as world:
            for _ in range(100):
                world.block(0.2)
                await asyncio.sleep(1)
    warnings = [line for line in logs if line["event"] == "event loop was blocked"]
    assert [line["log_level"] for line in warnings] == ["warning"] * 2
    assert warnings[0]["lag_s"] == 0.2


async def test_a_little_lag_is_nothing_to_warn_of():
    with capture_logs() as logs:
        async with monitored() as world:
            world.block(0.09)
            await asyncio.sleep(1)
    assert logs == []
