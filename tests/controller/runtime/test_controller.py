"""The workers: one key at a time, failures that stay their key's own, and when a key is looked at again."""

from __future__ import annotations

import asyncio

import pytest

from controller.runtime.result import After, AwaitChange, Report, Retry
from informers.errors import TooManyRequests
from informers.meta import ObjectKey
from tests.controller.runtime.workers import A, B, Script, working

pytestmark = pytest.mark.looptime


async def test_an_exception_is_that_keys_failure_and_is_retried_with_backoff():
    async def act(key: ObjectKey, call: int) -> Report:
        if key == A and call < 4:
            raise RuntimeError("boom")
        return Report(AwaitChange())

    script = Script(act)
    async with working(script) as (queue, tally):
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(10)
    assert len(script.calls[A]) == 4
    assert len(script.calls[B]) == 1
    first, *pauses = (later - earlier for earlier, later in zip(script.calls[A], script.calls[A][1:], strict=False))
    assert first == pytest.approx(0.005)
    assert pauses == pytest.approx([0.010, 0.020])
    assert tally.panics == 3
    assert tally.results == {"error": 3, "success": 2}
    assert tally.busy == 0


async def test_a_retry_waits_for_as_long_as_the_server_asked():
    async def act(key: ObjectKey, call: int) -> Report:
        if call == 1:
            raise TooManyRequests("later", code=429, retry_after_s=7.0)
        return Report(AwaitChange())

    script = Script(act)
    async with working(script) as (queue, _):
        queue.add(A)
        await asyncio.sleep(10)
    first, second = script.calls[A]
    assert second - first == pytest.approx(7.0)


async def test_a_key_that_asks_for_it_is_looked_at_again_and_one_that_is_settled_is_not():
    async def act(key: ObjectKey, call: int) -> Report:
        return Report(After(3.0) if key == A and call == 1 else AwaitChange())

    script = Script(act)
    async with working(script) as (queue, _):
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(100)
    first, second = script.calls[A]
    assert second - first == pytest.approx(3.0)
    assert len(script.calls[B]) == 1


async def test_a_key_that_is_woken_while_it_is_worked_on_runs_again_afterwards_and_never_at_once():
    async def act(key: ObjectKey, call: int) -> Report:
        await asyncio.sleep(1)
        return Report(AwaitChange())

    script = Script(act)
    async with working(script, workers=4) as (queue, _):
        for _ in range(5):
            queue.add(A)
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
    first, second = script.calls[A]
    assert second - first == pytest.approx(1.0)


async def test_a_success_makes_the_next_failure_the_first():
    async def act(key: ObjectKey, call: int) -> Report:
        return Report(AwaitChange()) if call == 4 else Report(Retry("no"))

    script = Script(act)
    async with working(script) as (queue, _):
        queue.add(A)
        await asyncio.sleep(1)
        queue.add(A)
        await asyncio.sleep(0.012)
    last = script.calls[A][5] - script.calls[A][4]
    assert last == pytest.approx(0.005)


async def test_shutting_down_finishes_what_is_in_hand_and_takes_nothing_more():
    done: list[ObjectKey] = []

    async def act(key: ObjectKey, call: int) -> Report:
        await asyncio.sleep(5)
        done.append(key)
        return Report(After(1.0))

    script = Script(act)
    async with working(script, workers=1) as (queue, tally):
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(1)
    assert done == [A]
    assert tally.busy == 0
