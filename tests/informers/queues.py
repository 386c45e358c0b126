"""What the tests of the work queue share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import looptime
import pytest

from informers.ratelimit import ItemBackoff
from informers.workqueue import WorkQueue


@pytest.fixture
async def loop_errors() -> AsyncIterator[None]:
    """What a timer's callback raises reaches only the loop's exception handler: here it fails the test."""
    errors = collect_loop_errors()
    yield
    assert errors == []


def collect_loop_errors() -> list[dict[str, Any]]:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    return errors


def now() -> float:
    return asyncio.get_running_loop().time()


def make_queue(**kwargs: Any) -> WorkQueue[str]:
    return WorkQueue("test", **{"limiter": ItemBackoff(), **kwargs})


async def turn(times: int = 3) -> None:
    """Let everything that is ready run."""
    for _ in range(times):
        await asyncio.sleep(0)


async def take_all(queue: WorkQueue[str]) -> list[str]:
    """Process whatever waits, one after the other, in no time."""
    taken = []
    while len(queue):
        taken.append(await queue.get())
        queue.done(taken[-1])
    return taken


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def watched() -> None:
        errors = collect_loop_errors()
        await main()
        assert errors == []

    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(noop_cycles=1)) as runner:
        runner.run(watched())
