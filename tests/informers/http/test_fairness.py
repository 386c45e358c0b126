"""Slots are shared fairly between the flows that wait for them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from informers.http.fairness import FLOW, FairSlots, Flow


@contextmanager
def in_flow(flow: Flow) -> Iterator[None]:
    token = FLOW.set(flow)
    try:
        yield
    finally:
        FLOW.reset(token)


class Work:
    """Tasks that keep a slot until the test ends the tasks.

    The field `running` contains the flows with a slot, in order.
    """

    def __init__(self, slots: int, group: asyncio.TaskGroup) -> None:
        self.slots = FairSlots(slots)
        self.running: list[str] = []
        self._group = group
        self._ends: list[asyncio.Event] = []

    async def start(self, *flows: Flow) -> list[asyncio.Task[None]]:
        tasks = []
        for flow in flows:
            with in_flow(flow):
                tasks.append(self._group.create_task(self._hold(flow[1])))
        await settle()
        return tasks

    async def _hold(self, name: str) -> None:
        async with self.slots:
            self.running.append(name)
            end = asyncio.Event()
            self._ends.append(end)
            await end.wait()

    async def end_one(self) -> None:
        self._ends.pop(0).set()
        await settle()

    async def end_all(self) -> None:
        while self._ends:
            await self.end_one()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_key_leaves_slots_for_other_keys():
    async with asyncio.TaskGroup() as group:
        work = Work(10, group)
        await work.start(*[("pool", "slow")] * 50)
        assert work.running == ["slow"] * 8
        await work.start(("pool", "other"), ("set", "third"))
        assert work.running[8:] == ["other", "third"]
        await work.end_all()
    assert len(work.running) == 52


async def test_one_group_leaves_slots_for_other_groups():
    async with asyncio.TaskGroup() as group:
        work = Work(10, group)
        await work.start(*[("pool", f"p{n}") for n in range(20)])
        assert len(work.running) == 9
        await work.start(("set", "s"))
        assert work.running[9:] == ["s"]
        await work.end_all()


async def test_a_cancelled_waiter_does_not_lose_a_slot():
    async with asyncio.TaskGroup() as group:
        work = Work(1, group)
        await work.start(("", "first"))
        [waiting] = await work.start(("", "cancelled"))
        waiting.cancel()
        await settle()
        await work.start(("", "last"))
        await work.end_all()
    assert work.running == ["first", "last"]


@pytest.mark.parametrize("steps", range(3))
async def test_a_waiter_that_is_cancelled_with_its_turn_gives_the_slot_to_the_next(steps: int):
    async with asyncio.TaskGroup() as group:
        work = Work(1, group)
        await work.start(("", "first"))
        [waiting] = await work.start(("", "cancelled"))
        await work.start(("", "last"))
        work._ends.pop(0).set()
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        await settle()
        assert work.running[-1] == "last"
        await work.end_all()


async def test_the_time_counts_only_while_a_request_waits(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    async with asyncio.TaskGroup() as group:
        work = Work(2, group)
        await work.start(*[("", "")] * 2)
        now[0] += 5
        assert (work.slots.size, work.slots.running, work.slots.waiting, work.slots.waited_s()) == (2, 2, 0, 0)
        *_, cancelled = await work.start(*[("", "")] * 2)
        now[0] += 3
        assert (work.slots.waiting, work.slots.waited_s()) == (2, 3)
        cancelled.cancel()
        await settle()
        now[0] += 2
        assert (work.slots.waiting, work.slots.waited_s()) == (1, 5)
        await work.end_one()
        now[0] += 9
        assert (work.slots.running, work.slots.waiting, work.slots.waited_s()) == (2, 0, 5)
        await work.end_all()
