import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import call, create_autospec

import pytest

from informers.instruments import Instruments
from informers.ratelimit import ItemBackoff
from informers.workqueue import QueueShutDown, WorkQueue
from tests.fakes.virtual_time import now
from tests.informers.queues import collect_loop_errors, make_queue

pytestmark = pytest.mark.looptime


@pytest.fixture(autouse=True)
async def _no_loop_errors() -> AsyncIterator[None]:
    """Fail the test if the callback of a timer raises an exception. Such an exception only reaches the loop's exception
    handler.
    """
    errors = collect_loop_errors()
    yield
    assert errors == []


@pytest.fixture
def queue() -> WorkQueue[str]:
    return make_queue()


async def take_all(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        taken.append(await queue.get())
        queue.done(taken[-1])
    return taken


@pytest.mark.parametrize(("added", "taken"), [("cab", "cab"), ("abaab", "ab")])
async def test_each_key_comes_out_once_in_the_order_in_which_they_were_added(queue, added, taken):
    for key in added:
        queue.add(key)
    assert len(queue) == len(taken)
    assert await take_all(queue) == [*taken]


async def test_done_without_get_is_an_error(queue):
    queue.add("a")
    with pytest.raises(ValueError, match="called without a get"):
        queue.done("a")
    assert await take_all(queue) == ["a"]


# Delays


async def test_the_delay_of_a_failing_key_grows_until_it_is_forgotten():
    queue = make_queue(limiter=ItemBackoff(initial_s=1))
    came_at = []
    for _ in range(3):
        queue.add_rate_limited("a")
        await queue.get()
        came_at.append(now())
        queue.done("a")
    assert came_at == [1, 3, 7]
    assert queue.retries("a") == 3
    queue.forget("a")
    assert queue.retries("a") == 0
    assert queue.add_rate_limited("a") == 1


async def test_another_limiter_does_not_count_in_the_queues_own_limiter():
    queue = make_queue(limiter=ItemBackoff(initial_s=1))
    other: ItemBackoff[str] = ItemBackoff(initial_s=0.25)
    assert [queue.add_rate_limited("a", limiter=other) for _ in range(3)] == [0.25, 0.5, 1]
    assert queue.add_rate_limited("a", limiter=other, at_least_s=20) == 20
    assert await queue.get() == "a"
    assert now() == 0.25
    queue.done("a")
    assert queue.retries("a") == 0
    assert queue.add_rate_limited("a") == 1


# Flows


async def test_flows_take_turns_so_many_keys_of_one_flow_delay_another_by_one_key():
    queue: WorkQueue[str] = WorkQueue("test", flow=lambda key: key[0])
    for key in (*(f"a{number}" for number in range(4)), "b0", "c0", "b1"):
        queue.add(key)
    assert len(queue) == 7
    taken = []
    while len(queue):
        taken.append(await queue.get())
        if taken[-1] == "a1":
            queue.add("d0")
    assert taken == ["a0", "b0", "c0", "a1", "b1", "a2", "d0", "a3"]


async def test_one_flow_never_has_all_workers_and_each_key_is_still_taken():
    queue: WorkQueue[str] = WorkQueue("test", flow=lambda key: key[0], most_of_flow=2)
    for number in range(4):
        queue.add(f"a{number}")
    assert [await queue.get() for _ in range(2)] == ["a0", "a1"]
    third = asyncio.ensure_future(queue.get())
    await asyncio.sleep(1)
    assert not third.done()
    queue.add("b0")
    assert await third == "b0"
    rest = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    assert not any(each.done() for each in rest)
    queue.add("a0")
    queue.done("a0")
    queue.done("a1")
    await asyncio.sleep(1)
    assert [each.result() for each in rest[:2]] == ["a2", "a3"]
    queue.shut_down(drain=True)
    queue.done("a2")
    assert await rest[2] == "a0"
    with pytest.raises(QueueShutDown):
        await queue.get()


# Instruments


def recorder() -> Any:
    return create_autospec(Instruments, instance=True)


async def test_depth_waiting_time_and_working_time_are_reported():
    recorded = recorder()
    queue = make_queue(instruments=recorded, limiter=ItemBackoff(initial_s=1))
    queue.add("first")
    queue.done(await queue.get())
    queue.add("a")
    queue.add("a")
    queue.add("b")
    await asyncio.sleep(3)
    await queue.get()
    await asyncio.sleep(2)
    queue.done("a")
    queue.add_rate_limited("a")
    assert (recorded.added.call_count, recorded.retried.call_count) == (3, 1)
    assert recorded.depth.call_args_list == [call("test", items) for items in (1, 0, 1, 2, 1)]
    assert recorded.started.call_args_list == [call("test", waited_s=0), call("test", waited_s=3)]
    assert recorded.finished.call_args_list == [call("test", worked_s=0), call("test", worked_s=2)]


async def test_the_waiting_time_of_a_key_that_is_added_during_its_run_starts_at_that_moment():
    recorded = recorder()
    queue = make_queue(instruments=recorded)
    queue.add("a")
    await queue.get()
    await asyncio.sleep(1)
    queue.add("a")
    await asyncio.sleep(6)
    assert queue.oldest_waiting_s(now()) == 6
    queue.done("a")
    await queue.get()
    assert recorded.started.call_args_list == [call("test", waited_s=0), call("test", waited_s=6)]


async def test_the_ages_of_waiting_and_unfinished_keys(queue):
    assert (queue.oldest_waiting_s(now()), queue.unfinished_s(now()), queue.longest_s(now())) == (0, 0, 0)
    queue.add("a")
    queue.add("b")
    await asyncio.sleep(1)
    queue.add("c")
    await queue.get()
    await asyncio.sleep(1)
    await queue.get()
    await asyncio.sleep(1)
    assert queue.oldest_waiting_s(now()) == 2
    assert queue.unfinished_s(now()) == 2 + 1
    assert queue.longest_s(now()) == 2


# The end


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
