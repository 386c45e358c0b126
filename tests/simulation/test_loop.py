"""The event loop of the simulation: order, virtual time, suspended processes."""

import asyncio
from contextvars import copy_context
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import PROCESS, SimulatedLoop


class Sleeper:
    is_suspended = False
    slept_s = 0.0


def run(work: Any, loop: SimulatedLoop) -> Any:
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_an_hour_of_sleep_takes_no_time_and_timers_fire_in_their_order() -> None:
    loop = SimulatedLoop(Random(1))
    fired: list[tuple[str, int]] = []

    async def note(name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        fired.append((name, round(loop.time())))

    async def whole() -> None:
        async with asyncio.TaskGroup() as group:
            for name, after_s in (("hour", 3600.0), ("second", 1.0), ("minute", 60.0)):
                group.create_task(note(name, after_s))

    run(whole(), loop)
    assert fired == [("second", 1), ("minute", 60), ("hour", 3600)]


@pytest.mark.parametrize(("sleeps", "times"), [(False, [1, 2, 12, 13, 14]), (True, [1, 2, 3, 4, 5])])
def test_a_suspended_process_does_nothing_while_the_others_go_on(sleeps: bool, times: list[int]) -> None:
    """The clock of a process stands still while its machine sleeps."""
    loop = SimulatedLoop(Random(1))
    process, seen = Sleeper(), list[tuple[str, int]]()

    async def tick(name: str) -> None:
        for _ in range(5):
            await asyncio.sleep(1)
            seen.append((name, round(loop.time())))

    def resume() -> None:
        process.slept_s += 9.5 * sleeps
        process.is_suspended = False
        loop.resume()

    async def whole() -> None:
        context = copy_context()
        context.run(PROCESS.set, process)
        tasks = [asyncio.Task(tick("suspended"), context=context), asyncio.Task(tick("free"))]
        await asyncio.sleep(2.5)
        process.is_suspended = loop.has_suspended = True
        loop.delay_timers(process, 9.5 * sleeps)
        loop.call_later(9.5, resume)
        await asyncio.wait(tasks)

    run(whole(), loop)
    assert [at for name, at in seen if name == "free"] == [1, 2, 3, 4, 5]
    assert [at for name, at in seen if name == "suspended"] == times
