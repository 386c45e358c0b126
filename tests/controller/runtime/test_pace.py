"""The delay after a change of counts grows with the cost of a reconciliation."""

from __future__ import annotations

import asyncio

import pytest

from controller.runtime.controller import Controller
from controller.runtime.pace import FACTOR, LONGEST_S, MAX_KEYS, Pace
from controller.runtime.result import AwaitChange, Report
from controller.runtime.wiring import wakes
from informers.meta import ObjectKey
from informers.store import Added
from informers.workqueue import WorkQueue
from tests.builders import vmi
from tests.controller.runtime.workers import Tally

KEY = ObjectKey("default", "large")


def test_after_an_expensive_pass_a_change_of_counts_waits_longer():
    pace = Pace()
    assert pace.delay_s(KEY, 0.2) == 0.2
    pace.note(KEY, 0.1)
    assert pace.delay_s(KEY, 0.2) == pytest.approx(FACTOR * 0.1)
    pace.note(KEY, 60)
    assert pace.delay_s(KEY, 0.2) == LONGEST_S
    pace.note(KEY, 0.0001)
    assert pace.delay_s(KEY, 0.2) == 0.2


def test_a_change_that_may_require_a_write_never_waits():
    pace = Pace()
    pace.note(KEY, 60)
    assert pace.delay_s(KEY, 0) == 0


def test_only_a_limited_number_of_passes_is_remembered():
    pace = Pace()
    for number in range(3 * MAX_KEYS):
        pace.note(ObjectKey("default", str(number)), 1)
    assert len(pace._delays) <= MAX_KEYS


class Expensive:
    """A reconciler. Each reconciliation reports that it has blocked the loop for 0.15 s."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def reconcile(self, key: ObjectKey) -> Report:
        self.times.append(asyncio.get_running_loop().time())
        return Report(AwaitChange(), {}, 0.15)


@pytest.mark.looptime
async def test_many_changes_of_counts_cause_few_expensive_passes():
    queue: WorkQueue[ObjectKey] = WorkQueue("subject")
    reconciler, pace = Expensive(), Pace()
    handle = wakes(queue, lambda change: [(KEY, 0.2)], pace)
    controller = Controller("subject", queue, reconciler, workers=1, instruments=Tally(), pace=pace)
    running = asyncio.create_task(controller.run())
    queue.add(KEY)
    for _ in range(90):
        await asyncio.sleep(0.1)
        handle(Added(vmi()))
    queue.shut_down()
    await running
    # 9 seconds and a delay of 1.5 s. Without the longer delay, there would be about 40 passes.
    assert 5 <= len(reconciler.times) <= 8
