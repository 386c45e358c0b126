from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from informers.ratelimit import ItemBackoff
from informers.workqueue import QueueShutDown, WorkQueue

pytestmark = pytest.mark.looptime


@pytest.fixture(autouse=True)
async def loop_errors():
    """What a timer's callback raises reaches only the loop's exception handler: here it fails the test."""
    errors = collect_loop_errors()
    yield
    assert errors == []


def collect_loop_errors() -> list[dict[str, Any]]:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    return errors


def now() -> float:
    return asyncio.get_running_loop().time()


def make_queue(**kwargs: Any) -> WorkQueue[str]:
    return WorkQueue("test", **{"limiter": ItemBackoff(), **kwargs})


async def turn(times: int = 3) -> None:
    """Let everything that is ready run."""
    for _ in range(times):
        await asyncio.sleep(0)


async def take_all(queue: WorkQueue[str]) -> list[str]:
    """Process whatever waits, one after the other, in no time."""
    taken = []
    while len(queue):
        taken.append(await queue.get())
        queue.done(taken[-1])
    return taken


async def test_keys_come_out_in_the_order_in_which_they_went_in():
    queue = make_queue()
    for key in "cab":
        queue.add(key)
    assert await take_all(queue) == ["c", "a", "b"]


async def test_a_key_added_many_times_is_handed_out_once():
    queue = make_queue()
    for key in "abaab":
        queue.add(key)
    assert len(queue) == 2
    assert await take_all(queue) == ["a", "b"]


async def test_a_key_added_while_a_worker_has_it_waits_for_that_worker_and_runs_again():
    queue = make_queue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_a_key_that_runs_again_waits_behind_those_that_came_before():
    queue = make_queue()
    queue.add("a")
    queue.add("b")
    await queue.get()
    queue.add("a")
    queue.done("a")
    assert await take_all(queue) == ["b", "a"]


async def test_done_without_work_in_hand_is_an_error():
    queue = make_queue()
    queue.add("a")
    with pytest.raises(ValueError, match="without a get"):
        queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_a_waiting_worker_gets_a_key_that_comes_later():
    queue = make_queue()
    asyncio.get_running_loop().call_later(5, queue.add, "a")
    assert await queue.get() == "a"
    assert now() == 5


async def test_between_two_keys_the_loop_gets_its_turn():
    queue = make_queue()
    for number in range(100):
        queue.add(str(number))
    seen: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: seen.append(len(queue)))
    await take_all(queue)
    assert seen[0] >= 98


# Delays


async def test_a_delayed_key_comes_when_its_delay_is_over():
    queue = make_queue()
    queue.add_after("a", 30)
    assert len(queue) == 0
    assert await queue.get() == "a"
    assert now() == 30


@pytest.mark.parametrize("delays", [(30, 10), (10, 30)], ids=["shorter later", "longer later"])
async def test_of_several_delays_the_one_that_ends_first_counts_and_the_key_comes_once(delays):
    queue = make_queue()
    for delay in delays:
        queue.add_after("a", delay)
    assert await queue.get() == "a"
    assert now() == 10
    queue.done("a")
    await asyncio.sleep(100)
    assert len(queue) == 0


@pytest.mark.parametrize("delay_s", [0, -1])
async def test_no_delay_is_a_plain_add(delay_s):
    queue = make_queue()
    queue.add_after("a", delay_s)
    assert len(queue) == 1


async def test_a_plain_add_does_not_take_a_delayed_one_away():
    queue = make_queue()
    queue.add_after("a", 30)
    queue.add("a")
    assert await take_all(queue) == ["a"]
    assert await queue.get() == "a"
    assert now() == 30


async def test_a_delay_that_ends_while_a_worker_has_the_key_makes_it_run_again():
    queue = make_queue()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)
    await asyncio.sleep(2)
    assert len(queue) == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_failures_of_a_key_delay_it_more_and_more_until_it_is_forgotten():
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


async def test_a_servers_retry_after_is_the_least_that_a_retry_waits():
    queue = make_queue(limiter=ItemBackoff(initial_s=1))
    assert queue.add_rate_limited("a", at_least_s=20) == 20
    await queue.get()
    assert now() == 20
    queue.done("a")
    assert queue.add_rate_limited("a", at_least_s=1) == 2


async def test_the_default_limiter_is_the_one_of_client_go():
    assert WorkQueue[str]("test").add_rate_limited("a") == 0.005


# Shutting down


async def test_iteration_ends_when_the_queue_is_shut_down():
    queue = make_queue()
    queue.add("a")
    seen = []
    async for key in queue:
        seen.append(key)
        queue.done(key)
        queue.shut_down()
    assert seen == ["a"]


async def test_workers_that_wait_end_when_the_queue_is_shut_down():
    queue = make_queue()
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(take_until_shut_down(queue)) for _ in range(3)]
        await turn()
        queue.shut_down()
    assert [task.result() for task in waiting] == [[], [], []]


async def take_until_shut_down(queue: WorkQueue[str], *, work_s: float = 0) -> list[str]:
    taken = []
    async for key in queue:
        await asyncio.sleep(work_s)
        taken.append(key)
        queue.done(key)
    return taken


async def test_get_says_so_when_there_will_be_no_more():
    queue = make_queue()
    queue.shut_down()
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_a_queue_that_is_shut_down_takes_nothing_in_and_drops_its_delays():
    queue = make_queue()
    queue.add_after("later", 10)
    queue.shut_down()
    queue.add("a")
    queue.add_after("b", 0)
    queue.add_after("c", 10)
    queue.add_rate_limited("d")
    await asyncio.sleep(1000)
    assert len(queue) == 0
    assert queue.oldest_waiting_s(now()) == 0


async def test_a_queue_that_is_shut_down_holds_no_key_any_more():
    class Key:
        """A key whose life can be watched."""

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


async def test_without_drain_waiting_keys_are_dropped_and_those_in_hand_finished():
    queue = make_queue()
    for key in "abc":
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(take_until_shut_down(queue, work_s=10))
        await asyncio.sleep(1)
        queue.shut_down()
        await queue.drained()
        assert now() == 10
    assert worker.result() == ["a"]


async def test_with_drain_waiting_keys_are_still_handed_out():
    queue = make_queue()
    for key in "abc":
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(take_until_shut_down(queue, work_s=10))
        await asyncio.sleep(1)
        queue.shut_down(drain=True)
        await queue.drained()
        assert now() == 30
    assert worker.result() == ["a", "b", "c"]


@pytest.mark.parametrize(("drain", "runs"), [(True, ["a", "a"]), (False, ["a"])])
async def test_a_key_that_was_to_run_again_does_so_only_in_a_drain(drain, runs):
    queue = make_queue()
    queue.add("a")
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(take_until_shut_down(queue, work_s=10))
        await asyncio.sleep(1)
        queue.add("a")
        queue.shut_down(drain=drain)
        await queue.drained()
    assert worker.result() == runs


async def test_a_drain_can_be_cut_short():
    queue = make_queue()
    for key in "abc":
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(take_until_shut_down(queue, work_s=10))
        await asyncio.sleep(1)
        queue.shut_down(drain=True)
        await asyncio.sleep(11)
        queue.shut_down()
    assert worker.result() == ["a", "b"]
    await queue.drained()


async def test_an_idle_queue_is_drained_as_soon_as_it_is_shut_down():
    queue = make_queue()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await queue.drained()
    queue.shut_down()
    await queue.drained()
    assert now() == 5


# Cancelled workers


async def test_a_worker_cancelled_after_its_wake_up_hands_it_on():
    queue = make_queue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await turn()
    queue.add("a")
    first.cancel()
    async with asyncio.timeout(1):
        assert await second == "a"
    assert first.cancelled() or await is_cancelled(first)


async def is_cancelled(task: asyncio.Task[str]) -> bool:
    await asyncio.wait([task])
    return task.cancelled()


async def test_a_worker_cancelled_before_the_wake_up_does_not_swallow_it():
    queue = make_queue()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await turn()
    first.cancel()
    queue.add("a")
    async with asyncio.timeout(1):
        assert await second == "a"
    assert await is_cancelled(first)


async def test_a_worker_cancelled_while_it_waits_leaves_nothing_behind():
    queue = make_queue()
    for _ in range(3):
        waiting = asyncio.create_task(queue.get())
        await turn()
        waiting.cancel()
        assert await is_cancelled(waiting)
    queue.add("a")
    assert await take_all(queue) == ["a"]


async def test_workers_that_give_up_again_and_again_leave_nothing_behind():
    queue = make_queue()
    before = futures_alive()
    for _ in range(100):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await queue.get()
    assert futures_alive() < before + 50


def futures_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, asyncio.Future) for thing in gc.get_objects())


async def test_a_get_that_times_out_takes_no_key_with_it():
    queue = make_queue()
    asyncio.get_running_loop().call_later(5, queue.add, "a")
    try:
        async with asyncio.timeout(5):
            taken = await queue.get()
    except TimeoutError:
        taken = await queue.get()
    assert taken == "a"
    queue.done("a")
    assert len(queue) == 0


# What it reports


class Figures:
    """Keeps what the queue reports."""

    def __init__(self) -> None:
        self.depths: list[int] = []
        self.adds = 0
        self.retries = 0
        self.waits: list[float] = []
        self.works: list[float] = []

    def depth(self, queue: str, items: int) -> None:
        assert queue == "test"
        self.depths.append(items)

    def added(self, queue: str) -> None:
        self.adds += 1

    def retried(self, queue: str) -> None:
        self.retries += 1

    def started(self, queue: str, *, waited_s: float) -> None:
        self.waits.append(waited_s)

    def finished(self, queue: str, *, worked_s: float) -> None:
        self.works.append(worked_s)


async def test_the_figures_tell_depth_waiting_and_working_time():
    figures = Figures()
    queue = make_queue(instruments=figures, limiter=ItemBackoff(initial_s=1))
    queue.add("a")
    queue.add("a")
    queue.add("b")
    await asyncio.sleep(3)
    await queue.get()
    await asyncio.sleep(2)
    queue.done("a")
    queue.add_rate_limited("a")
    assert (figures.adds, figures.retries) == (2, 1)
    assert figures.depths == [1, 2, 1]
    assert figures.waits == [3]
    assert figures.works == [2]


async def test_a_key_added_during_its_own_run_waits_from_that_moment_on():
    figures = Figures()
    queue = make_queue(instruments=figures)
    queue.add("a")
    await queue.get()
    await asyncio.sleep(1)
    queue.add("a")
    await asyncio.sleep(6)
    assert queue.oldest_waiting_s(now()) == 6
    queue.done("a")
    await queue.get()
    assert figures.waits == [0, 6]


async def test_the_depth_is_zero_after_a_shut_down_that_drops_keys():
    figures = Figures()
    queue = make_queue(instruments=figures)
    queue.add("a")
    queue.shut_down()
    assert figures.depths == [1, 0]


async def test_the_ages_of_work_waiting_and_in_hand_can_be_asked_for():
    queue = make_queue()
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


# The contract, under any interleaving

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
    """Workers and a script on one queue, and a log of what was asked for and what ran."""

    def __init__(self, *, workers: int, work_s: list[float]) -> None:
        self.queue: WorkQueue[str] = make_queue(limiter=ItemBackoff(initial_s=0.3, maximum_s=5))
        self.log: list[tuple[str, str, float]] = []
        self.running: set[str] = set()
        self._work_s = work_s
        self._tasks = [asyncio.create_task(self._work()) for _ in range(workers)]
        self._cancelled: list[asyncio.Task[None]] = []

    async def _work(self) -> None:
        async for key in self.queue:
            assert key not in self.running, "two workers at once"
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
                    self._ask(verb, *arguments)

    def _ask(self, verb: str, key: str, delay_s: float = 0.0) -> None:
        if verb == "add":
            self.queue.add(key)
        elif verb == "add_after":
            self.queue.add_after(key, delay_s)
        else:
            delay_s = self.queue.add_rate_limited(key)
        self.log.append(("asked", key, now() + delay_s))

    async def end(self) -> None:
        self.queue.shut_down(drain=True)
        await self.queue.drained()
        results = await asyncio.gather(*self._tasks, *self._cancelled, return_exceptions=True)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results), results

    def unanswered(self) -> list[str]:
        """The keys of requests after which no run of the key started."""
        return [
            key
            for index, (what, key, _) in enumerate(self.log)
            if what == "asked" and not any(entry[:2] == ("run", key) for entry in self.log[index + 1 :])
        ]

    def unasked(self) -> list[str]:
        """The keys of runs that came before their time, or more often than they were asked for."""
        due: dict[str, list[float]] = {key: [] for key in "abc"}
        wrong = []
        for what, key, at in self.log:
            if what == "asked":
                due[key].append(at)
                due[key].sort()
            elif not due[key] or due[key].pop(0) > at + 1e-6:
                wrong.append(key)
        return wrong


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def watched() -> None:
        errors = collect_loop_errors()
        await main()
        assert errors == []

    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(watched())


@settings(deadline=None, max_examples=300)
@given(
    workers=st.integers(1, 4),
    work_s=st.lists(DELAYS, min_size=1, max_size=4),
    steps=st.lists(STEPS, max_size=40),
)
def test_every_add_is_followed_by_a_run_that_started_after_it_and_no_key_runs_twice_at_once(workers, work_s, steps):
    async def main() -> None:
        scenario = Scenario(workers=workers, work_s=work_s)
        await scenario.perform(steps)
        await asyncio.sleep(1000)
        assert scenario.unanswered() == []
        assert scenario.unasked() == []
        assert len(scenario.queue) == 0
        assert scenario.queue.unfinished_s(now()) == 0
        await scenario.end()

    in_virtual_time(main)


@settings(deadline=None, max_examples=200)
@given(
    workers=st.integers(1, 4),
    work_s=st.lists(DELAYS, min_size=1, max_size=4),
    steps=st.lists(STEPS.filter(lambda step: step[0] != "add_after"), max_size=40),
)
def test_a_drain_at_any_moment_loses_no_key_that_was_not_delayed(workers, work_s, steps):
    async def main() -> None:
        scenario = Scenario(workers=workers, work_s=work_s)
        await scenario.perform([step for step in steps if step[0] != "add_rate_limited"])
        await scenario.end()
        assert scenario.unanswered() == []

    in_virtual_time(main)


@settings(deadline=None, max_examples=200)
@given(workers=st.integers(1, 4), work_s=st.lists(DELAYS, min_size=1, max_size=4), steps=st.lists(STEPS, max_size=40))
def test_after_a_plain_shut_down_only_keys_in_hand_are_finished(workers, work_s, steps):
    async def main() -> None:
        scenario = Scenario(workers=workers, work_s=work_s)
        await scenario.perform(steps)
        runs = len(scenario.log)
        scenario.queue.shut_down()
        await scenario.queue.drained()
        assert scenario.running == set()
        await scenario.end()
        assert [entry for entry in scenario.log[runs:] if entry[0] == "run"] == []

    in_virtual_time(main)
