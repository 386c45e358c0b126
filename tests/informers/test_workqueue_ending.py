import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from informers.workqueue import WorkQueue
from tests.fakes.virtual_time import now
from tests.informers.queues import loop_errors, make_queue

pytestmark = [pytest.mark.looptime, pytest.mark.usefixtures(loop_errors.__name__)]


# Shutting down


async def take_until_shut_down(queue: WorkQueue[str], *, work_s: float = 0) -> list[str]:
    taken = []
    async for key in queue:
        await asyncio.sleep(work_s)
        taken.append(key)
        queue.done(key)
    return taken


@asynccontextmanager
async def worked_on(keys: str) -> AsyncIterator[tuple[WorkQueue[str], asyncio.Task[list[str]]]]:
    """A queue with these keys, and a worker that needs 10 seconds for each key. The worker got its first key one second
    ago.

    The block ends when the worker ends.
    """
    queue = make_queue()
    for key in keys:
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(take_until_shut_down(queue, work_s=10))
        await asyncio.sleep(1)
        yield queue, worker


async def test_after_shut_down_no_key_is_accepted_and_delays_are_dropped(queue):
    queue.add_after("later", 10)
    queue.shut_down()
    queue.add("a")
    queue.add_after("b", 0)
    queue.add_after("c", 10)
    queue.add_rate_limited("d")
    await asyncio.sleep(1000)
    assert len(queue) == 0
    assert queue.oldest_waiting_s(now()) == 0


async def test_after_shut_down_the_queue_keeps_no_reference_to_a_key():
    class Key:
        """A key that supports weak references."""

    queue: WorkQueue[Key] = WorkQueue("test")
    early, late, waiting = Key(), Key(), Key()
    queue.add(waiting)
    queue.add_after(early, 10)
    queue.shut_down()
    queue.add_after(late, 10)
    alive = weakref.WeakSet([early, late, waiting])
    del early, late, waiting
    gc.collect()
    assert len(alive) == 0


async def test_a_second_shut_down_ends_a_drain_early():
    async with worked_on("abc") as (queue, worker):
        queue.shut_down(drain=True)
        await asyncio.sleep(11)
        queue.shut_down()
    assert worker.result() == ["a", "b"]


# Cancelled workers
