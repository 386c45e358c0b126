import asyncio

import pytest

from controller.leaderelection.elector import LeaseLost, NotLeader
from controller.leaderelection.lease import LEASES
from tests.controller.leaderelection import electorate
from tests.fakes.requests import Request
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime


# Losing the lease


@pytest.mark.parametrize("trouble", ["refused", "hangs"])
async def test_a_leader_that_cannot_renew_is_cancelled_at_the_renew_deadline(trouble):
    _, (leader, first), (standby, second) = await electorate.leader_and_standby()
    await asyncio.sleep(30)
    (last_renewal, _) = leader.connection.log[-1]
    leader.connection.trouble = trouble
    with pytest.raises(LeaseLost, match="could not be renewed for 10s"):
        await first
    assert leader.led_to == pytest.approx(last_renewal + 10)
    await asyncio.sleep(10)
    assert standby.led_from - leader.led_to > 4.9
    await electorate.settle(second)


# Without a holder, another process may have led before the next renewal.
@pytest.mark.parametrize(("holder", "message"), [("b", "is held by b"), ("", "the lease here/vmherd")])
async def test_a_leader_stops_at_its_next_renewal_if_it_is_not_the_holder_any_more(holder, message):
    server, _, task = await electorate.one_leader()
    server.edit(spec={"holderIdentity": holder})
    with pytest.raises(LeaseLost, match=message):
        await task
    assert now() < 1 + 2.5
    assert server.record["holderIdentity"] == holder


async def test_a_leader_whose_machine_slept_beyond_the_deadline_writes_nothing_and_ends():
    """The timers of the loop stand still during the sleep."""
    slept_s = 0.0
    leader = electorate.Process(electorate.LeaseServer(), "a", clock=lambda: now() + slept_s)
    task = leader.start()
    await asyncio.sleep(5)
    slept_s = 60.0
    with pytest.raises(NotLeader):
        leader.elector.check()
    with pytest.raises(LeaseLost):
        await task
    assert now() < 5 + 2.5


async def test_a_leader_creates_a_deleted_lease_again_and_no_standby_takes_over():
    server, (leader, first), (standby, second) = await electorate.leader_and_standby(chance=lambda: 0.0)
    await asyncio.sleep(10.1)
    server.remove(LEASES, electorate.LEASE)
    await asyncio.sleep(100)
    assert leader.elector.is_leader
    assert leader.led_to == standby.led_from == -1
    assert server.record["holderIdentity"] == "a"
    await electorate.settle(first, second)


async def test_a_leader_stops_if_a_new_process_creates_the_deleted_lease_first():
    server, _, task = await electorate.one_leader()
    server.remove(LEASES, electorate.LEASE)

    def race(request: Request) -> None:
        if request.verb == "create":
            server.fault_for = lambda request: None
            server.put(LEASES, {"metadata": {"name": "vmherd", "namespace": "here"}, "spec": {"holderIdentity": "b"}})

    server.fault_for = race
    with pytest.raises(LeaseLost, match="is held by b"):
        await task
    assert now() < 1 + 2 * 2.5


# The gate


async def test_the_gate_closes_at_the_deadline_even_if_the_work_ignores_its_cancellation():
    process = electorate.Process(electorate.LeaseServer(), "a")
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
    assert process.connection.log[-1][0] < written_at + 10, "no request is sent after the lease is lost"


async def test_the_deadline_counts_from_the_start_of_the_request():
    process = electorate.Process(electorate.LeaseServer(), "a")
    process.connection.latency_s = 1.2
    task = process.start()
    await asyncio.sleep(4.9)
    process.connection.trouble = "hangs"
    with pytest.raises(LeaseLost):
        await task
    written_at = next(at for at, method in process.connection.log if method == "POST")
    assert process.led_to == pytest.approx(written_at + 10)


async def test_the_gauge_is_zero_from_the_start_and_one_while_leading():
    process = electorate.Process(electorate.LeaseServer(), "a")
    assert process.reports == [False]
    async with process.elector.elected(process.stop):
        assert process.reports[1:] == [True]
    assert process.reports[2:] == [False]
