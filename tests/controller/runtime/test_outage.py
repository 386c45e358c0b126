"""Retries during server-side failures: the number of requests, and how soon work continues after the server has
recovered.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from controller.runtime.result import AwaitChange, Report, Retry
from controller.runtime.workers.outage import (
    LONGEST_S,
    LONGEST_SINGLE_S,
    PROBES_AT_ONCE,
    PROBES_PER_S,
    SINGLE_FAILURE_S,
    Outage,
)
from informers.errors import ServerError, TooManyRequests, TransportError
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue
from tests.controller.runtime.workers import A, B, Script, working
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime(noop_cycles=1)  # no socket and no thread: the clock need not wait for either

MANY = [ObjectKey("ns", f"set-{number}") for number in range(1000)]
REFUSED = TransportError("connection refused", sent=False)
OVERLOADED = ServerError("try again later", code=503)
WELL = Report(AwaitChange(), {"create_done": 1})
QUOTA_FULL = Report(Retry("exceeded quota"))


def gone_until(back_at: float, *, error: Exception = REFUSED, then: Report = WELL) -> Script:
    """A server that rejects all requests before this time and answers all requests after it."""

    async def act(key: ObjectKey, call: int) -> Report:
        if now() < back_at:
            raise error
        return then

    return Script(act)


@asynccontextmanager
async def working_on_many(script: Script) -> AsyncIterator[WorkQueue[ObjectKey]]:
    async with working(script, workers=10) as (queue, _):
        for key in MANY:
            queue.add(key)
        yield queue


@pytest.mark.parametrize("error", [REFUSED, ServerError("etcdserver: request timed out", code=500)], ids=repr)
@pytest.mark.parametrize("outage_s", [1, 20, 3600])
async def test_a_key_is_retried_within_seconds_after_an_outage_of_any_length(outage_s: float, error: Exception):
    script = gone_until(outage_s, error=error)
    async with working(script) as (queue, _):
        queue.add(A)
        await asyncio.sleep(outage_s + 100)
    *_, last = script.calls[A]
    assert outage_s <= last <= outage_s + LONGEST_S
    assert len(script.calls[A]) <= 12 + outage_s / LONGEST_S


async def test_a_failing_server_gets_no_more_requests_for_a_thousand_keys_than_for_ten():
    script = gone_until(60)
    async with working_on_many(script):
        await asyncio.sleep(59.9)
        assert sum(map(len, script.calls.values())) <= len(MANY) + PROBES_AT_ONCE + 60 * PROBES_PER_S


@pytest.mark.no_cover  # hours of the same few lines
@pytest.mark.parametrize(
    "script", [gone_until(60), gone_until(60, then=QUOTA_FULL)], ids=["success", "failure of a key"]
)
async def test_the_first_answer_ends_the_outage_for_all_keys(script):
    async with working_on_many(script):
        await asyncio.sleep(60 + LONGEST_S)
        assert {key for key, calls in script.calls.items() if calls[-1] >= 60} == set(MANY)


async def test_a_timer_that_is_early_costs_no_probe():
    outage = Outage(WorkQueue("early"))
    outage.wait(A)
    tokens = [outage._probes._tokens, [outage._probe() for _ in range(9)] and outage._probes._tokens]
    assert tokens == [PROBES_AT_ONCE - 1] * 2


async def test_the_next_outage_starts_with_short_delays():
    async def act(key: ObjectKey, call: int) -> Report:
        if now() < 60 or 70 <= now() < 70.004:
            raise REFUSED
        return WELL

    script = Script(act)
    async with working_on_many(script) as queue:
        await asyncio.sleep(70)
        queue.add(A)
        await asyncio.sleep(1)
    assert script.calls[A] == pytest.approx([70, 70.005])


async def test_a_retry_after_is_respected_even_if_another_key_succeeds():
    async def act(key: ObjectKey, call: int) -> Report:
        if now() >= 10:
            return WELL
        if key == A:
            raise TooManyRequests("later", code=429, retry_after_s=60.0)
        raise REFUSED

    script = Script(act)
    async with working(script) as (queue, _):
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(100)
    assert script.calls[A] == pytest.approx([0, 60])
    assert 10 <= script.calls[B][-1] <= 10 + LONGEST_S


@pytest.mark.no_cover  # hours of the same few lines
async def test_in_a_partial_outage_a_key_waits_at_most_half_a_minute_and_its_own_backoff_does_not_grow():
    async def act(key: ObjectKey, call: int) -> Report:
        if key == A and now() < 500:
            raise OVERLOADED
        return QUOTA_FULL if key == A else WELL

    script = Script(act)
    async with working(script) as (queue, _):
        queue.add(B)
        queue.add(A)
        for _ in range(6000):
            queue.add(B)
            await asyncio.sleep(0.1)
    assert len(script.calls[B]) >= 6000
    waits = [later - earlier for earlier, later in pairwise(script.calls[A]) if earlier < 500]
    assert all(SINGLE_FAILURE_S <= wait <= LONGEST_SINGLE_S + 0.001 for wait in waits)
    first, second = [at for at in script.calls[A] if at >= 500][:2]
    assert second - first == pytest.approx(0.005)


@pytest.mark.no_cover  # hours of the same few lines
async def test_five_hundred_hopeless_keys_do_not_delay_the_retry_of_another_key():
    hopeless = MANY[:500]

    async def act(key: ObjectKey, call: int) -> Report:
        if key in hopeless or call == 1:
            raise OVERLOADED
        return WELL

    script = Script(act)
    async with working(script, workers=10) as (queue, _):
        for key in hopeless:
            queue.add(key)
        await asyncio.sleep(300)
        queue.add(A)
        await asyncio.sleep(2)
        first, second = script.calls[A]
        assert second - first <= 1
        before = sum(map(len, script.calls.values()))
        for _ in range(100):
            queue.add(A)
            await asyncio.sleep(1)
        passes = sum(map(len, script.calls.values())) - before - 100
    assert passes / 100 <= 30, "hopeless passes a second"
