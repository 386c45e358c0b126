"""The election in a thread of its own, in real time: the main loop of the tests is blocked now and then."""

import asyncio
import os
import threading
import time
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.leaderelection.elector import ElectionImpossible, LeaseLost, NotLeader
from controller.leaderelection.own_thread import LONGEST_AWAY_S, Deadman, elected_in_own_thread
from controller.running import leaf_errors
from informers.errors import Invalid
from tests.controller.leaderelection.electorate import LeaseServer, Process
from tests.fakes.virtual_time import Clock

TIMES = {"lease_duration_s": 1.5, "renew_deadline_s": 1.0, "retry_period_s": 0.1}


class ThreadedProcess(Process):
    def __init__(self, server: LeaseServer, name: str = "a", **kwargs: Any) -> None:
        super().__init__(server, name, **{"clock": time.monotonic, **TIMES, **kwargs})

    def elected(self) -> Any:
        return elected_in_own_thread(self.elector, self.stop, lambda: None)


async def test_a_main_loop_that_is_blocked_for_longer_than_the_lease_keeps_it_and_a_stop_ends_a_wait() -> None:
    server = LeaseServer()
    process = ThreadedProcess(server)
    async with process.elected() as leading:
        assert leading
        time.sleep(2 * TIMES["lease_duration_s"])
        process.elector.check()
        standby = ThreadedProcess(server, "b")
        began = time.monotonic()
        asyncio.get_running_loop().call_later(0.5, standby.stop.set)
        async with standby.elected() as other:
            assert not other
        assert time.monotonic() - began < 0.8
    assert server.record["holderIdentity"] == ""
    assert server.record["leaseTransitions"] == 0


async def test_the_gate_closes_at_the_deadline_while_the_main_loop_is_blocked() -> None:
    process = ThreadedProcess(LeaseServer())
    was_closed = False

    async def work() -> None:
        nonlocal was_closed
        async with process.elected():
            process.connection.trouble = "hangs"
            time.sleep(TIMES["renew_deadline_s"] + 0.1)
            with pytest.raises(NotLeader):
                process.elector.check()
            was_closed = True
            await process.stop.wait()

    with pytest.raises(LeaseLost):
        await work()
    assert was_closed


async def test_the_block_is_cancelled_when_the_lease_is_lost_and_no_later() -> None:
    process = ThreadedProcess(LeaseServer())
    spent_s = 0.0

    async def work() -> None:
        nonlocal spent_s
        async with process.elected():
            process.connection.trouble = "refused"
            began = time.monotonic()
            try:
                await process.stop.wait()
            finally:
                spent_s = time.monotonic() - began

    with pytest.raises(LeaseLost, match="could not be renewed for 1s"):
        await work()
    assert 0 < spent_s < TIMES["renew_deadline_s"] + 0.2


@pytest.mark.parametrize("failure", [KeyError("broken"), asyncio.CancelledError()])
async def test_a_block_that_fails_or_is_cancelled_keeps_the_lease_and_one_that_ends_releases_it(
    failure: BaseException,
) -> None:
    server = LeaseServer()
    with pytest.raises(BaseException) as raised:
        async with ThreadedProcess(server).elected():
            raise failure
    assert leaf_errors(raised.value) == (failure,)
    assert server.record["holderIdentity"] == "a"


async def test_an_election_that_is_impossible_fails_with_its_reason_and_leaves_no_thread() -> None:
    process = ThreadedProcess(LeaseServer())
    process.connection.error = Invalid("metadata.name: Invalid value", code=422)
    with pytest.raises(ElectionImpossible, match="Invalid value"):
        async with process.elected():
            pytest.fail("the process does not lead")
    await asyncio.sleep(0.1)
    assert "lease" not in {thread.name for thread in threading.enumerate()}


def test_the_deadman_ends_the_process_at_the_second_look_and_names_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    answered_at = clock.now
    look = Deadman(lambda: clock.now - answered_at, lambda: "pool/tenant/web").look
    clock.now += LONGEST_AWAY_S
    look()
    clock.now += 3600  # the process was suspended, and answers again
    look()
    answered_at = clock.now
    look()
    assert ends == []
    clock.now += LONGEST_AWAY_S + 1
    look()
    assert ends == []
    clock.now += 1
    with capture_logs() as logs:
        look()
    assert ends == [1]
    [line] = logs
    assert (line["log_level"], line["at_work"], line["away_s"]) == ("error", "pool/tenant/web", LONGEST_AWAY_S + 2)
