"""A namespace with expensive reconciliations waits, and the other namespaces do not wait."""

import asyncio

import pytest

from controller.runtime.result import AwaitChange, Report
from controller.runtime.workers.controller import Controller
from controller.runtime.workers.loop_share import ALLOWANCE_S, MAX_NAMESPACES, SHARE, LoopShare, Usage
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue
from tests.controller.runtime.workers import Tally
from tests.fakes.virtual_time import Clock


def usage(share: LoopShare, namespace: str, seconds: float = 0.0) -> Usage:
    made = Usage(share, "pool", ObjectKey(namespace, "web"))
    made.sum_s = seconds
    return made


def test_a_namespace_waits_after_it_has_used_its_allowance_and_until_its_share_allows_more() -> None:
    clock = Clock()
    share = LoopShare(clock)
    greedy, other = usage(share, "greedy"), usage(share, "other")
    share.spend(usage(share, "greedy", ALLOWANCE_S))
    assert share.wait_s(greedy) == 0
    share.spend(usage(share, "greedy", 0.5))
    assert share.wait_s(greedy) == pytest.approx(0.5 / SHARE)
    assert share.wait_s(other) == 0
    clock.now += share.wait_s(greedy)
    assert share.wait_s(greedy) == pytest.approx(0)


def test_namespaces_without_a_debt_are_forgotten() -> None:
    clock = Clock()
    share = LoopShare(clock)
    for number in range(MAX_NAMESPACES):
        share.spend(usage(share, f"ns-{number}", 0.001))
    clock.now += 1
    share.spend(usage(share, "last", 0.5))
    assert len(share._used) == 1


async def test_only_the_stretches_between_two_waits_are_measured_and_a_cancellation_passes_through() -> None:
    cpu = Clock()
    share = LoopShare(Clock(), cpu)
    used = usage(share, "ns")
    at_work: list[str] = []

    async def work() -> None:
        cpu.now += 0.4
        at_work.append(share.at_work)
        await asyncio.sleep(0)
        cpu.now += 0.6
        try:
            await asyncio.sleep(3600)
        finally:
            cpu.now += 0.3

    async def measured() -> None:
        await used.measured(work(), counts=True)

    task = asyncio.create_task(measured())
    for _ in range(3):
        await asyncio.sleep(0)
        assert share.at_work == ""
        cpu.now += 100  # other tasks
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert at_work == ["pool/ns/web"]
    assert (used.longest_s, used.sum_s) == (pytest.approx(0.6), pytest.approx(1.3))


class Expensive:
    """A reconciler. Each reconciliation in the namespace "greedy" needs 0.2 s of CPU time."""

    def __init__(self, cpu: Clock) -> None:
        self._cpu = cpu
        self.passes: list[tuple[float, str]] = []

    async def reconcile(self, key: ObjectKey) -> Report:
        self.passes.append((asyncio.get_running_loop().time(), key.namespace))
        self._cpu.now += 0.2 if key.namespace == "greedy" else 0.001
        return Report(AwaitChange())


@pytest.mark.looptime
async def test_the_passes_of_a_greedy_namespace_are_delayed_and_those_of_others_are_not() -> None:
    queue: WorkQueue[ObjectKey] = WorkQueue("subject")
    cpu = Clock()
    reconciler = Expensive(cpu)
    share = LoopShare(asyncio.get_running_loop().time, cpu)
    controller = Controller("subject", queue, reconciler, workers=2, instruments=Tally(), share=share)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        started = asyncio.get_running_loop().time()
        for number in range(40):
            queue.add(ObjectKey("greedy", f"pool-{number}"))
        await asyncio.sleep(0.5)
        queue.add(ObjectKey("other", "pool"))
        await asyncio.sleep(20)
        queue.shut_down()
    greedy = [at - started for at, namespace in reconciler.passes if namespace == "greedy"]
    [other] = [at - started for at, namespace in reconciler.passes if namespace == "other"]
    assert len(greedy) == 40, "each key gets its pass"
    assert other == pytest.approx(0.5, abs=0.1)
    assert len([at for at in greedy if at <= 5]) * 0.2 <= ALLOWANCE_S + 5 * SHARE + 0.5
