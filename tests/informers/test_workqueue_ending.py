import asyncio
import gc
import weakref

import pytest

from informers.workqueue import QueueShutDown, WorkQueue
from tests.fakes.virtual_time import now
from tests.informers.queues import loop_errors

pytestmark = [pytest.mark.looptime, pytest.mark.usefixtures(loop_errors.__name__)]


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


async def test_a_second_shut_down_ends_a_drain_early(queue):
    for key in "abc":
        queue.add(key)
    assert await queue.get() == "a"
    queue.shut_down(drain=True)
    assert await queue.get() == "b"
    queue.shut_down()
    with pytest.raises(QueueShutDown):
        await queue.get()
