from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.leaderelection.elector import LeaseLost, NotLeader
from controller.leaderelection.lease import LEASES
from controller.running import leaf_errors
from informers.errors import ServerError, TransportError
from tests.controller.leaderelection.electorate import LEASE, LeaseServer, Process, now, settle
from tests.fakes.requests import Request

pytestmark = pytest.mark.looptime


# Losing the lease


@pytest.mark.parametrize("trouble", ["refused", "hangs"])
async def test_a_leader_that_cannot_renew_is_cancelled_at_the_renew_deadline(trouble):
    server = LeaseServer()
    leader, standby = Process(server, "a"), Process(server, "b")
    first = leader.start()
    await asyncio.sleep(1)
    second = standby.start()
    await asyncio.sleep(30)
    (last_renewal, _) = leader.connection.log[-1]
    leader.connection.trouble = trouble
    with pytest.raises(LeaseLost, match="could not be renewed for 10s"):
        await first
    assert leader.led_to == pytest.approx(last_renewal + 10)
    await asyncio.sleep(10)
    assert standby.led_from - leader.led_to > 4.9
    await settle(second)


async def test_a_leader_whose_answers_are_lost_gives_up_though_its_renewals_arrive():
    server = LeaseServer()
    leader = Process(server, "a")
    task = leader.start()
    await asyncio.sleep(1)
    leader.connection.trouble = "loses answers"
    with pytest.raises(LeaseLost):
        await task
    assert now() == pytest.approx(10, abs=0.1)


async def test_one_lost_answer_costs_nothing():
    server = LeaseServer()
    leader = Process(server, "a")
    task = leader.start()
    await asyncio.sleep(1)
    leader.connection.trouble = "loses answers"
    await asyncio.sleep(3)
    leader.connection.trouble = ""
    await asyncio.sleep(100)
    assert leader.elector.is_leader
    assert server.record["leaseTransitions"] == 0
    await settle(task)


async def test_an_outage_shorter_than_the_renew_deadline_costs_nothing():
    server = LeaseServer()
    leader = Process(server, "a")
    task = leader.start()
    await asyncio.sleep(21)
    leader.connection.error = ServerError("etcdserver: no leader", code=500)
    await asyncio.sleep(7)
    leader.connection.error = None
    await asyncio.sleep(100)
    assert leader.elector.is_leader
    await settle(task)


async def test_a_leader_stops_at_its_next_renewal_when_somebody_else_has_the_lease():
    server = LeaseServer()
    leader = Process(server, "a")
    task = leader.start()
    await asyncio.sleep(1)
    server.edit(spec={"holderIdentity": "b"})
    with pytest.raises(LeaseLost, match="is held by b"):
        await task
    assert now() < 1 + 2.5
    assert server.record["holderIdentity"] == "b"


async def test_a_leader_stops_when_somebody_cleared_the_lease_for_others_may_have_led_meanwhile():
    server = LeaseServer()
    leader = Process(server, "a")
    task = leader.start()
    await asyncio.sleep(1)
    server.edit(spec={"holderIdentity": ""})
    with pytest.raises(LeaseLost):
        await task
    assert now() < 1 + 2.5
    assert server.record["holderIdentity"] == ""


async def test_a_note_that_somebody_puts_on_the_lease_costs_nothing_and_stays():
    server = LeaseServer()
    leader = Process(server, "a")
    task = leader.start()
    await asyncio.sleep(1)
    server.edit(metadata={"annotations": {"note": "hello"}})
    await asyncio.sleep(100)
    assert leader.elector.is_leader
    assert server.lease["metadata"]["annotations"] == {"note": "hello"}
    await settle(task)


async def test_a_deleted_lease_is_put_back_by_its_leader_and_no_standby_steps_in():
    server = LeaseServer()
    leader, standby = Process(server, "a"), Process(server, "b", chance=lambda: 0.0)
    first = leader.start()
    await asyncio.sleep(1)
    second = standby.start()
    await asyncio.sleep(10.1)
    server.remove(LEASES, LEASE)
    await asyncio.sleep(100)
    assert leader.elector.is_leader
    assert leader.led_to == standby.led_from == -1
    assert server.record["holderIdentity"] == "a"
    await settle(first, second)


async def test_a_lease_that_a_newcomer_makes_while_its_leader_puts_it_back_is_the_newcomers():
    server = LeaseServer()
    leader = Process(server, "a")
    task = leader.start()
    await asyncio.sleep(1)
    server.remove(LEASES, LEASE)

    def race(request: Request) -> None:
        if request.verb == "create":
            server.fault_for = lambda request: None
            server.put(LEASES, {"metadata": {"name": "vmherd", "namespace": "here"}, "spec": {"holderIdentity": "b"}})

    server.fault_for = race
    with pytest.raises(LeaseLost, match="is held by b"):
        await task
    assert now() < 1 + 2 * 2.5


async def test_work_that_fails_while_it_is_cancelled_is_still_a_lost_lease():
    leader = Process(LeaseServer(), "a")

    async def work() -> None:
        async with leader.elector.elected(leader.stop):
            try:
                await leader.stop.wait()
            finally:
                raise KeyError("broken")

    task = asyncio.create_task(work())
    await asyncio.sleep(1)
    leader.connection.trouble = "refused"
    with pytest.raises(LeaseLost) as caught:
        await task
    assert KeyError in {type(leaf) for leaf in leaf_errors(caught.value.__cause__)}


# The gate


async def test_the_gate_is_closed_before_and_after_leading_and_open_meanwhile():
    process = Process(LeaseServer(), "a")
    with pytest.raises(NotLeader):
        process.elector.check()
    async with process.elector.elected(process.stop):
        process.elector.check()
        await asyncio.sleep(100)
        process.elector.check()
    with pytest.raises(NotLeader):
        process.elector.check()


async def test_the_gate_closes_at_the_deadline_even_for_code_that_ignores_its_cancellation():
    process = Process(LeaseServer(), "a")
    last_open = 0.0

    async def stubborn() -> None:
        nonlocal last_open
        async with process.elector.elected(process.stop):
            process.connection.trouble = "hangs"
            while now() < 40:
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue
                if process.elector.is_leader:
                    last_open = now()
            raise asyncio.CancelledError

    with pytest.raises(LeaseLost):
        await asyncio.create_task(stubborn())
    written_at = next(at for at, method in process.connection.log if method == "POST")
    assert last_open < written_at + 10
    assert last_open == pytest.approx(written_at + 10, abs=0.05)
    assert process.connection.log[-1][0] < written_at + 10, "nothing is sent for a lease that is lost"


async def test_a_renewal_that_would_be_answered_after_the_deadline_is_given_up():
    process = Process(LeaseServer(), "a")

    async def slow_to_stop() -> None:
        async with process.elector.elected(process.stop):
            try:
                await process.stop.wait()
            finally:
                await asyncio.sleep(5)
                assert not process.elector.is_leader

    task = asyncio.create_task(slow_to_stop())
    await asyncio.sleep(1)
    process.connection.trouble = "hangs"
    await asyncio.sleep(7)
    process.connection.trouble, process.connection.latency_s = "", 1.0
    with pytest.raises(LeaseLost) as caught:
        await task
    assert isinstance(caught.value.__cause__, TimeoutError)


async def test_a_slow_answer_counts_from_when_the_request_was_sent():
    process = Process(LeaseServer(), "a")
    process.connection.latency_s = 1.2
    task = process.start()
    await asyncio.sleep(4.9)
    process.connection.trouble = "hangs"
    with pytest.raises(LeaseLost):
        await task
    written_at = next(at for at, method in process.connection.log if method == "POST")
    assert process.led_to == pytest.approx(written_at + 10)


async def test_a_refused_write_says_that_it_never_left():
    with pytest.raises(TransportError) as caught:
        Process(LeaseServer(), "a").elector.check()
    assert caught.value.sent is False


async def test_the_gauge_is_zero_from_the_start_and_one_while_leading():
    process = Process(LeaseServer(), "a")
    assert process.gauge.values == [("vmherd", False)]
    async with process.elector.elected(process.stop):
        assert process.gauge.values[1:] == [("vmherd", True)]
    assert process.gauge.values[2:] == [("vmherd", False)]


# Never two, whatever happens

FAULTS = st.lists(
    st.tuples(
        st.floats(0, 12),
        st.integers(0, 2),
        st.sampled_from(["", "", "refused", "hangs", "loses answers", "slow", "restart", "stop"]),
    ),
    max_size=25,
)


class Fleet:
    """Three processes that come back under a new name whenever they end, and a watch on who leads."""

    def __init__(self) -> None:
        self._server = LeaseServer()
        self._born = 0
        self.processes: list[Process] = []
        self._tasks: list[asyncio.Task[bool]] = []
        for _ in range(3):
            self.processes.append(self._new())
            self._tasks.append(self.processes[-1].start())

    def _new(self) -> Process:
        self._born += 1
        process = Process(self._server, f"p{self._born}")
        process.on_election = self.check
        return process

    def check(self) -> None:
        assert sum(process.elector.is_leader for process in self.processes) <= 1

    async def strike(self, index: int, fault: str) -> None:
        process, task = self.processes[index], self._tasks[index]
        if fault == "stop":
            process.stop.set()
        elif fault == "restart" or task.done():
            self._check_ends(await settle(task))
            self.processes[index] = self._new()
            self._tasks[index] = self.processes[index].start()
        else:
            process.connection.latency_s = 2.0 if fault == "slow" else 0.01
            process.connection.trouble = fault if fault != "slow" else ""

    async def watch(self, seconds: float) -> None:
        end = now() + seconds
        while now() < end:
            await asyncio.sleep(0.3)
            self.check()

    async def heal(self) -> None:
        for index in range(3):
            await self.strike(index, "")
            if self.processes[index].stop.is_set():
                await self.strike(index, "restart")

    async def end(self) -> None:
        self._check_ends(await settle(*self._tasks))

    @staticmethod
    def _check_ends(outcomes: list[Any]) -> None:
        for outcome in outcomes:
            assert isinstance(outcome, bool | LeaseLost | asyncio.CancelledError), outcome


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(noop_cycles=1)) as runner:
        runner.run(main())


@settings(deadline=None, max_examples=60)
@given(faults=FAULTS)
def test_there_are_never_two_leaders_and_after_the_faults_there_is_one(faults):
    async def main() -> None:
        fleet = Fleet()
        for pause_s, index, fault in faults:
            await fleet.watch(pause_s)
            await fleet.strike(index, fault)
        await fleet.watch(5)
        await fleet.heal()
        await fleet.watch(30)
        assert sum(process.elector.is_leader for process in fleet.processes) == 1
        await fleet.end()

    in_virtual_time(main)
