"""Workers with a reconciler that the test controls."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

from controller.runtime.result import Report
from controller.runtime.workers.controller import Controller
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue

A, B = ObjectKey("ns", "a"), ObjectKey("ns", "b")


class Tally:
    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.busy = 0
        self.panics = 0

    def workers(self, controller: str, *, most: int) -> None: ...

    def worker_busy(self, controller: str, *, change: int) -> None:
        self.busy += change

    def reconciled(self, controller: str, *, result: str, seconds: float) -> None:
        self.results[result] += 1

    def panicked(self, controller: str) -> None:
        self.panics += 1


class Script:
    """A reconciler that calls a function of the test and records the time of each call."""

    def __init__(self, act: Callable[[ObjectKey, int], Awaitable[Report]]) -> None:
        self._act = act
        self.calls: dict[ObjectKey, list[float]] = {}
        self.at_once: Counter[ObjectKey] = Counter()

    async def reconcile(self, key: ObjectKey) -> Report:
        calls = self.calls.setdefault(key, [])
        calls.append(asyncio.get_running_loop().time())
        self.at_once[key] += 1
        assert self.at_once[key] == 1
        try:
            return await self._act(key, len(calls))
        finally:
            self.at_once[key] -= 1


@asynccontextmanager
async def working(script: Script, *, workers: int = 2) -> AsyncIterator[tuple[WorkQueue[ObjectKey], Tally]]:
    """Run a controller while the block runs. After the block, the controller finishes the running reconciliations."""
    tally = Tally()
    queue: WorkQueue[ObjectKey] = WorkQueue("test")
    controller = Controller("test", queue, script, workers=workers, instruments=tally)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        yield queue, tally
        queue.shut_down()


async def worked_on(act: Callable[[ObjectKey, int], Awaitable[Report]], *keys: ObjectKey, for_s: float) -> Script:
    """Let a controller with two workers reconcile these keys for a time."""
    script = Script(act)
    async with working(script) as (queue, _):
        for key in keys:
            queue.add(key)
        await asyncio.sleep(for_s)
    return script


def reports(*each: Report | Exception) -> Callable[[ObjectKey, int], Awaitable[Report]]:
    """Reconciliations with these results, in order. The last result repeats."""

    async def act(key: ObjectKey, call: int) -> Report:
        report = each[min(call, len(each)) - 1]
        if isinstance(report, Exception):
            raise report
        return report

    return act


def pauses(script: Script, key: ObjectKey) -> list[float]:
    """The times between the reconciliations of a key."""
    return [later - earlier for earlier, later in pairwise(script.calls[key])]
