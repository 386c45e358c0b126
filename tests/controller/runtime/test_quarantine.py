"""Keys that keep the event loop busy for longer than a second, in virtual time. The CPU clock is set by the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.runtime.actions import Notice
from controller.runtime.result import AwaitChange, Report
from controller.runtime.workers.controller import Controller
from controller.runtime.workers.loop_share import FIRST_S, LISTED, LONGEST_S, SLOW_S, LoopShare, measured_part
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue
from tests.controller.runtime.workers import Tally, pauses
from tests.fakes.virtual_time import Clock, now

pytestmark = pytest.mark.looptime

# Each key has a namespace of its own, so the share of a namespace delays nothing.
SLOW, SLOWER, QUICK = (ObjectKey(name, "web") for name in ("slow", "slower", "quick"))
TAKES_S = 2.0


class Process:
    """A controller with one worker. A reconciliation of a key in `slow` has a stretch of `SLOW_S` and more."""

    def __init__(self, share: LoopShare | None = None) -> None:
        self.cpu = Clock()
        self.share = share or LoopShare(now, self.cpu)
        self.slow = {SLOW: SLOW_S + 0.1}
        self.calls: dict[ObjectKey, list[float]] = {}
        self.running: set[ObjectKey] = set()
        self.most_slow = 0
        self.events: list[tuple[ObjectKey, Notice]] = []
        self.queue: WorkQueue[ObjectKey] = WorkQueue("pool")
        self.controller = Controller(
            "pool",
            self.queue,
            self,
            workers=1,
            instruments=Tally(),
            share=self.share,
            publish=lambda key, notice: self.events.append((key, notice)),
        )

    async def reconcile(self, key: ObjectKey) -> Report:
        self.calls.setdefault(key, []).append(now())
        if key == QUICK:
            return Report(AwaitChange())
        self.running.add(key)
        self.most_slow = max(self.most_slow, len(self.running))
        self.cpu.now += self.slow.get(key, 0.0)
        await asyncio.sleep(TAKES_S)  # its requests
        self.running.remove(key)
        return Report(AwaitChange())

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run())
            yield
            self.queue.shut_down()


async def test_a_slow_key_waits_longer_each_time_and_leaves_after_as_many_quick_passes() -> None:
    process = Process()
    async with process.working():
        process.queue.add(SLOW)
        await asyncio.sleep(1000)
        slow = [pause - TAKES_S for pause in pauses(process, SLOW)]  # type: ignore[arg-type]
        assert slow == pytest.approx([10, 20, 40, 80, 160, 300, 300][: len(slow)])
        assert len(slow) >= 6
        assert process.share.quarantined() == 1
        process.slow.clear()
        began = len(process.calls[SLOW])
        await asyncio.sleep(3600)
        quick = [pause - TAKES_S for pause in pauses(process, SLOW)[began:]]  # type: ignore[arg-type]
        assert quick == pytest.approx([150, 75, 37.5, 18.75])
        assert process.share.quarantined() == 0
        process.queue.add(SLOW)
        await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        assert process.calls[SLOW][-1] == pytest.approx(now(), abs=0.2), "after the quarantine, it does not wait"
    assert LONGEST_S == 300


async def test_a_change_of_a_slow_key_does_not_end_its_wait() -> None:
    process = Process()
    async with process.working():
        process.queue.add(SLOW)
        await asyncio.sleep(TAKES_S + 1)
        for _ in range(5):
            process.queue.add(SLOW)
            await asyncio.sleep(1)
        assert len(process.calls[SLOW]) == 1
        await asyncio.sleep(FIRST_S)
        assert len(process.calls[SLOW]) == 2


async def test_slow_keys_run_one_at_a_time_and_take_no_workers_place() -> None:
    process = Process()
    process.slow[SLOWER] = 5.0
    async with process.working():
        process.queue.add(SLOW)
        process.queue.add(SLOWER)
        await asyncio.sleep(2 * TAKES_S + 1)
        assert process.share.quarantined() == 2
        for _ in range(300):
            process.queue.add(QUICK)
            asked = now()
            await asyncio.sleep(1)
            assert process.calls[QUICK][-1] == pytest.approx(asked, abs=0.1)
    assert process.most_slow == 1
    assert min(len(process.calls[SLOW]), len(process.calls[SLOWER])) >= 4


async def test_each_slow_pass_is_an_event_of_its_object() -> None:
    process = Process()
    async with process.working():
        process.queue.add(SLOW)
        process.queue.add(QUICK)
        await asyncio.sleep(20)
    assert [(key, each.reason, each.message) for key, each in process.events] == [
        (
            SLOW,
            "Quarantined",
            f"its reconciliation kept the controller busy for 1.1 s without a pause, so the next one is in {wait} s",
        )
        for wait in (10, 20)
    ]


async def test_a_slow_request_task_counts_as_a_stretch_of_its_key_and_not_for_the_share_of_its_namespace() -> None:
    process = Process()

    async def request() -> None:
        process.cpu.now += 3

    async def reconcile(key: ObjectKey) -> Report:
        async with asyncio.TaskGroup() as group:
            group.create_task(measured_part(request))
        return Report(AwaitChange())

    process.reconcile = reconcile  # type: ignore[method-assign]
    async with process.working():
        process.queue.add(SLOW)
        await asyncio.sleep(1)
    assert process.share.note("", 0.0) == "pool/slow/web"
    assert process.share._used == {}


async def test_the_next_process_takes_the_keys_of_the_note_last_and_in_quarantine() -> None:
    process = Process()
    async with process.working():
        process.queue.add(SLOW)
        await asyncio.sleep(1)
        process.share.at_work = "pool/slower/web"
        assert process.share.note("", SLOW_S) == ""
        left = process.share.note("", SLOW_S + 1)
    assert left == "pool/slower/web"
    successor = Process()
    assert successor.share.note(f"{left},pool/slow/web", 0.0) == "pool/slower/web,pool/slow/web"
    async with successor.working():
        for key in (SLOW, SLOWER, QUICK):
            successor.queue.add(key)
        started = now()
        await asyncio.sleep(60)
    first = {key: calls[0] - started for key, calls in successor.calls.items()}
    assert first[QUICK] < 0.1
    assert sorted((first[SLOW], first[SLOWER])) == pytest.approx([FIRST_S, FIRST_S + TAKES_S], abs=1.1)
    assert successor.most_slow == 1


def test_the_note_is_short_and_forgets_texts_that_name_no_object() -> None:
    clock = Clock()
    share = LoopShare(clock)
    noted = share.note(",".join(f"pool/ns/{number}" for number in range(1000)), 0.0)
    assert noted.split(",") == [f"pool/ns/{number}" for number in range(LISTED)]
    assert share.quarantined() == LISTED
    clock.now += FIRST_S + LONGEST_S
    assert share.note(",,,", 0.0) == ""
    assert share.quarantined() == 0
