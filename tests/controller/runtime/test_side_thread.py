from __future__ import annotations

import asyncio
import threading

import pytest

from controller.runtime.side_thread import LARGE, SideThread


async def test_the_event_loop_continues_during_a_plan_that_reads_many_members():
    released = threading.Event()
    call = asyncio.create_task(SideThread().call(released.wait, 10.0, reads=LARGE))
    await asyncio.sleep(0.01)
    assert not call.done()
    released.set()
    was_released, _ = await call
    assert was_released


async def test_the_plan_that_reads_few_members_needs_no_other_thread():
    thread, _ = await SideThread().call(threading.get_ident, reads=LARGE - 1)
    assert thread == threading.get_ident()


async def test_there_is_one_plan_at_a_time():
    side = SideThread()
    threads = await asyncio.gather(*(side.call(threading.get_ident, reads=LARGE) for _ in range(10)))
    assert len({thread for thread, _ in threads}) == 1


async def test_an_exception_of_the_plan_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        await SideThread().call(lambda: 1 // 0, reads=LARGE)
