import asyncio
from itertools import pairwise

import pytest

from controller.leaderelection.elector import ElectionImpossible, new_identity
from controller.leaderelection.lease import QUARANTINE
from informers.errors import Forbidden, Invalid, NotFound
from tests.controller.leaderelection.electorate import LeaseServer, Process, leader_and_standby, one_leader, settle
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime


# Becoming leader


async def test_the_first_candidate_creates_the_lease_and_leads_at_once():
    server, process, task = await one_leader()
    assert process.elector.is_leader
    assert process.led_from < 0.1
    assert server.record == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-21T00:00:00.010000Z",
        "renewTime": "2026-11-21T00:00:00.010000Z",
        "leaseTransitions": 0,
    }
    await settle(task)


async def test_a_leader_stays_leader_and_renews_every_retry_period():
    server, (leader, task), (standby, other) = await leader_and_standby()
    await asyncio.sleep(1000)
    assert leader.elector.is_leader
    assert leader.led_to == -1
    assert server.record["leaseTransitions"] == 0
    assert server.record["acquireTime"].startswith("2026-11-21T00:00:00.01")
    renewals = [at for at, method in leader.connection.log if method == "PATCH"]
    gaps = [later - earlier for earlier, later in pairwise(renewals)]
    assert min(gaps) >= 2.0
    assert max(gaps) <= 2.5
    assert {method for _, method in standby.connection.log} == {"GET"}
    await settle(task, other)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Forbidden("leases is forbidden: User stranger", code=403), "create, get and patch"),
        (Invalid("metadata.name: Invalid value", code=422), "metadata.name: Invalid value"),
    ],
)
async def test_a_permanent_error_ends_the_election_with_a_message(error, message):
    process = Process(LeaseServer(), "a")
    process.connection.error = error
    with pytest.raises(ElectionImpossible, match=message):
        await process.run()


async def test_a_candidate_retries_after_a_403_of_a_starting_server():
    process = Process(LeaseServer(), "a")
    process.connection.error = Forbidden("leases is forbidden: User stranger", code=403)
    task = asyncio.create_task(process.run())
    await asyncio.sleep(25)
    assert not task.done()
    process.connection.error = None
    await asyncio.sleep(2)
    assert process.elector.is_leader
    await settle(task)


async def test_a_missing_namespace_ends_the_election_with_a_message():
    server = LeaseServer()
    missing = NotFound('namespaces "here" not found', code=404)
    server.fault_for = lambda request: missing if request.verb == "create" else None
    with pytest.raises(ElectionImpossible, match='namespaces "here" not found'):
        await Process(server, "a").run()


@pytest.mark.parametrize(
    "times",
    [
        {"lease_duration_s": 10.0, "renew_deadline_s": 10.0},
        {"renew_deadline_s": 2.4, "retry_period_s": 2.0},
        {"retry_period_s": 0.0},
    ],
    ids=["no time to end the work", "no time for a second attempt", "no pause"],
)
async def test_unsafe_times_are_rejected(times):
    with pytest.raises(ValueError, match="lease_duration_s > renew_deadline_s"):
        Process(LeaseServer(), "a", **times)


def test_two_processes_on_one_machine_have_different_identities():
    assert new_identity() != new_identity()


# Stopping


async def test_a_candidate_stopped_during_a_hanging_request_returns_within_half_the_renew_deadline():
    process = Process(LeaseServer(), "a")
    process.connection.trouble = "hangs"
    task = process.start()
    await asyncio.sleep(1)
    process.stop.set()
    assert await task is False
    assert now() <= 5


async def test_a_candidate_stopped_during_its_election_releases_the_lease():
    server = LeaseServer()
    process = Process(server, "a")
    task = process.start()
    await asyncio.sleep(0.025)
    assert server.record["holderIdentity"] == "a"
    process.stop.set()
    assert await task is False
    assert process.led_from == -1
    assert not process.elector.is_leader
    assert server.record["holderIdentity"] == ""


# Takeover


@pytest.mark.parametrize("random_number", [0.0, 0.999])
async def test_a_leader_that_ends_without_an_error_releases_the_lease_and_a_standby_leads_within_two_seconds(
    random_number,
):
    server, (leader, first), (standby, second) = await leader_and_standby(chance=lambda: random_number)
    await asyncio.sleep(30)
    leader.stop.set()
    assert await first is True
    assert (server.record["holderIdentity"], server.record["leaseDurationSeconds"]) == ("", 1)
    await asyncio.sleep(2)
    assert standby.elector.is_leader
    assert standby.led_from - leader.led_to < 2
    assert (server.record["holderIdentity"], server.record["leaseTransitions"]) == ("b", 1)
    await settle(second)


@pytest.mark.parametrize("dies_after_s", [30, 30.4, 30.8, 31.2, 31.6])
async def test_a_standby_takes_over_one_lease_duration_after_it_saw_the_last_change(dies_after_s):
    _, (leader, first), (standby, second) = await leader_and_standby(chance=lambda: 0.999)
    await asyncio.sleep(dies_after_s)
    await settle(first)
    (died_at, _) = leader.connection.log[-1]
    await asyncio.sleep(20)
    saw_at = next(at for at, _ in standby.connection.log if at > died_at)
    assert standby.led_from - saw_at == pytest.approx(15, abs=0.1)
    await settle(second)


async def test_a_renewal_in_flight_at_the_end_of_the_work_does_not_prevent_the_release():
    server, leader, task = await one_leader()
    leader.connection.latency_s = 0.5
    while leader.connection.log[-1][1] != "PATCH":
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.6)  # the server has renewed the lease, and the answer is in flight
    leader.stop.set()
    assert await task is True
    assert server.record["holderIdentity"] == ""


@pytest.mark.parametrize("trouble", ["refused", "hangs"])
async def test_a_failing_release_ends_after_half_the_renew_deadline(trouble):
    server, leader, task = await one_leader()
    leader.connection.trouble = trouble
    leader.stop.set()
    assert await task is True
    assert now() <= 1 + 5
    assert server.record["holderIdentity"] == "a"


async def test_a_lease_that_another_process_has_taken_is_not_released():
    server, leader, task = await one_leader()
    server.edit(spec={"holderIdentity": "b"})
    leader.stop.set()
    assert await task is True
    assert server.record["holderIdentity"] == "b"


# With these times, rounding makes the standby wake just before the lease expires. A sleep for the remaining time has
# then no effect on the clock of the loop.
@pytest.mark.parametrize("joined_at_s", [0.4918, 2.903, 2.9167])
async def test_a_standby_has_no_busy_loop_shortly_before_the_lease_expires(joined_at_s):
    pauses = 0

    def chance() -> float:
        nonlocal pauses
        pauses += 1
        assert pauses < 50, "busy loop"
        return 0.5

    server = LeaseServer()
    leader, standby = Process(server, "a"), Process(server, "b", chance=chance)
    first = leader.start()
    await asyncio.sleep(joined_at_s)
    second = standby.start()
    await asyncio.sleep(1)
    await settle(first)
    standby.connection.trouble = "refused"
    await asyncio.sleep(20)
    assert [type(outcome) for outcome in await settle(second)] == [asyncio.CancelledError]


# A restore of etcd


async def test_a_lease_whose_version_decreases_reports_a_restore_once_and_the_leader_stays_leader():
    server, leader, task = await one_leader()
    found: list[str] = []
    leader.elector.restores.on_restore = found.append
    await asyncio.sleep(10)
    assert found == []
    before = int(server.lease["metadata"]["resourceVersion"])
    server.lease["metadata"]["resourceVersion"] = str(before - 1)
    await asyncio.sleep(10)
    assert found == [f"the lease vmherd has version {before - 1}, but had version {before} before"]
    assert leader.elector.is_leader
    await settle(task)


# The note of the objects in quarantine


class Quarantine:
    """Records what the elector hands over, and returns the text of the test."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.inherited: list[str] = []

    def __call__(self, inherited: str) -> dict[str, str]:
        if inherited:
            self.inherited.append(inherited)
            self.text = inherited
        return {QUARANTINE: self.text}


async def test_the_lease_has_the_note_of_its_leader_within_a_renewal_and_not_for_longer():
    server, note = LeaseServer(), Quarantine()
    leader = Process(server, "a", notes=note)
    task = leader.start()
    await asyncio.sleep(10)
    assert "annotations" not in server.lease["metadata"]
    server.edit(metadata={"annotations": {"other": "kept"}})
    note.text = "pool/tenant/web"
    await asyncio.sleep(2.5)
    assert server.lease["metadata"]["annotations"] == {"other": "kept", QUARANTINE: "pool/tenant/web"}
    note.text = ""
    await asyncio.sleep(2.5)
    assert server.lease["metadata"]["annotations"] == {"other": "kept"}
    assert note.inherited == []
    await settle(task)


@pytest.mark.parametrize("is_released", [True, False])
async def test_the_next_leader_inherits_the_note_and_keeps_it(is_released):
    server, first, second = LeaseServer(), Quarantine("pool/tenant/web"), Quarantine()
    leader = Process(server, "a", notes=first)
    task = leader.start()
    await asyncio.sleep(5)
    if is_released:
        leader.stop.set()
    await settle(task)
    successor = Process(server, "b", notes=second)
    other = successor.start()
    await asyncio.sleep(20)
    assert successor.elector.is_leader
    assert second.inherited == ["pool/tenant/web"]
    assert server.lease["metadata"]["annotations"] == {QUARANTINE: "pool/tenant/web"}
    await settle(other)
