"""Property tests of the work queue with random interleavings of producers and workers."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from informers.ratelimit import ItemBackoff
from informers.workqueue import WorkQueue
from tests.fakes.virtual_time import now
from tests.informers.queues import in_virtual_time, make_queue

KEYS = st.sampled_from("abc")
DELAYS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])
STEPS = st.one_of(
    st.tuples(st.just("add"), KEYS),
    st.tuples(st.just("add_after"), KEYS, DELAYS),
    st.tuples(st.just("add_rate_limited"), KEYS),
    st.tuples(st.just("forget"), KEYS),
    st.tuples(st.just("turn")),
    st.tuples(st.just("sleep"), DELAYS),
    st.tuples(st.just("cancel"), st.integers(0, 3)),
)


class Scenario:
    """Workers and a sequence of steps on one queue, with a log of all requests and runs."""

    def __init__(self, *, workers: int, work_s: list[float]) -> None:
        self.queue: WorkQueue[str] = make_queue(limiter=ItemBackoff(initial_s=0.3, maximum_s=5))
        self.log: list[tuple[str, str, float]] = []
        self.running: set[str] = set()
        self._work_s = work_s
        self._tasks = [asyncio.create_task(self._work()) for _ in range(workers)]
        self._cancelled: list[asyncio.Task[None]] = []

    async def _work(self) -> None:
        async for key in self.queue:
            assert key not in self.running, "two workers have the same key"
            self.log.append(("run", key, now()))
            self.running.add(key)
            try:
                await asyncio.sleep(self._work_s[len(self.log) % len(self._work_s)])
            finally:
                self.running.remove(key)
                self.queue.done(key)

    async def perform(self, steps: list[tuple[Any, ...]]) -> None:
        for verb, *arguments in steps:
            match verb:
                case "turn":
                    await asyncio.sleep(0)
                case "sleep":
                    await asyncio.sleep(arguments[0])
                case "cancel":
                    index = arguments[0] % len(self._tasks)
                    self._tasks[index].cancel()
                    self._cancelled.append(self._tasks[index])
                    self._tasks[index] = asyncio.create_task(self._work())
                case "forget":
                    self.queue.forget(*arguments)
                case _:
                    self._request(verb, *arguments)

    def _request(self, verb: str, key: str, delay_s: float = 0.0) -> None:
        if verb == "add":
            self.queue.add(key)
        elif verb == "add_after":
            self.queue.add_after(key, delay_s)
        else:
            delay_s = self.queue.add_rate_limited(key)
        self.log.append(("requested", key, now() + delay_s))

    async def end(self) -> None:
        self.queue.shut_down(drain=True)
        results = await asyncio.gather(*self._tasks, *self._cancelled, return_exceptions=True)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results), results

    def unanswered(self) -> list[str]:
        """Return the keys that were requested but did not run afterwards."""
        return [
            key
            for index, (what, key, _) in enumerate(self.log)
            if what == "requested" and not any(entry[:2] == ("run", key) for entry in self.log[index + 1 :])
        ]

    def unrequested(self) -> list[str]:
        """Return the keys that ran too early or without a request."""
        due: dict[str, list[float]] = {key: [] for key in "abc"}
        wrong = []
        for what, key, at in self.log:
            if what == "requested":
                due[key].append(at)
                due[key].sort()
            elif not due[key] or due[key].pop(0) > at + 1e-6:
                wrong.append(key)
        return wrong


@settings(deadline=None, max_examples=150)
@given(workers=st.integers(1, 4), work_s=st.lists(DELAYS, min_size=1, max_size=4), steps=st.lists(STEPS, max_size=40))
@in_virtual_time
async def test_after_every_add_a_run_starts_and_no_key_has_two_runs_at_once(workers, work_s, steps):
    scenario = Scenario(workers=workers, work_s=work_s)
    await scenario.perform(steps)
    await asyncio.sleep(1000)
    assert scenario.unanswered() == []
    assert scenario.unrequested() == []
    assert len(scenario.queue) == 0
    assert scenario.queue.unfinished_s(now()) == 0
    await scenario.end()


@settings(deadline=None, max_examples=100)
@given(
    workers=st.integers(1, 4),
    work_s=st.lists(DELAYS, min_size=1, max_size=4),
    steps=st.lists(STEPS.filter(lambda step: step[0] != "add_after"), max_size=40),
)
@in_virtual_time
async def test_a_drain_at_any_moment_loses_no_key_that_was_not_delayed(workers, work_s, steps):
    scenario = Scenario(workers=workers, work_s=work_s)
    await scenario.perform([step for step in steps if step[0] != "add_rate_limited"])
    await scenario.end()
    assert scenario.unanswered() == []


@settings(deadline=None, max_examples=100)
@given(workers=st.integers(1, 4), work_s=st.lists(DELAYS, min_size=1, max_size=4), steps=st.lists(STEPS, max_size=40))
@in_virtual_time
async def test_after_shut_down_without_drain_only_current_runs_are_finished(workers, work_s, steps):
    scenario = Scenario(workers=workers, work_s=work_s)
    await scenario.perform(steps)
    runs = len(scenario.log)
    scenario.queue.shut_down()
    await scenario.end()
    assert scenario.running == set()
    assert [entry for entry in scenario.log[runs:] if entry[0] == "run"] == []
