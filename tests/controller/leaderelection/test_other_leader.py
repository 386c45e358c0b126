"""A vmherd outside the cluster does not start beside a vmherd that leads with another lease."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from controller.config.settings import Config
from controller.leaderelection.lease import LEASES
from controller.leaderelection.other_leader import (
    MARGIN_S,
    OtherLeader,
    OtherLeaders,
    SeveralLeases,
    find_other_leader,
    with_lease_namespace,
)
from controller.preflight.checks import StartupError, check
from controller.running import running
from informers.errors import Forbidden
from informers.meta import ObjectKey
from tests.command_line import parse
from tests.controller.takeover.answers import Answers, wall_clock
from tests.fakes.answers import Answering, Call
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime

HERE, THERE = "mine", "vmherd-system"
RENEWS_EVERY_S = 2.0
LEASE_S = 15


class Cluster(Answering):
    """A cluster with leases. If `may_list` is False, the user may not list leases in all namespaces.

    If `allows` is False, each list of leases gets the answer 403.
    """

    def __init__(self, **holders: str) -> None:
        self.may_list = self.allows = True
        self.asked: list[str] = []
        self.leases = FakeApiServer(latency_s=0, serves=[LEASES])
        for namespace, holder in holders.items():
            self.add(namespace.replace("_", "-"), holder)

    def add(self, namespace: str, holder: str, name: str = "vmherd") -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": LEASE_S}
        self.leases.put(LEASES, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})

    async def answer(self, call: Call) -> bytes:
        self.asked.append(call.path)
        if call.path.endswith("/selfsubjectaccessreviews"):
            return json.dumps({"status": {"allowed": self.may_list}}).encode()
        if call.path.endswith("/selfsubjectreviews"):
            return b"{}"
        if not self.allows and call.path == LEASES.path(""):
            raise Forbidden("cannot list leases", code=403)
        return await self.leases.answer(call)

    async def renew(self, namespace: str) -> None:
        """Renew a lease again and again until the task is cancelled."""
        number = 0
        while True:
            await asyncio.sleep(RENEWS_EVERY_S)
            number += 1
            renewed = {"spec": {"renewTime": f"2026-01-01T00:00:{number:02}.000000Z"}}
            self.leases.change(LEASES, ObjectKey(namespace, "vmherd"), renewed)


@asynccontextmanager
async def live(cluster: Cluster, *namespaces: str) -> AsyncIterator[None]:
    async with running(*(cluster.renew(namespace) for namespace in namespaces)):
        yield


async def found(cluster: Cluster, *argv: str, **more: Any) -> OtherLeader | None:
    chosen = argv or ("--leader-election-namespace", HERE)
    return await find_other_leader(cluster, parse(chosen, {}, **more))


async def test_a_live_holder_of_another_lease_is_found_at_its_next_renewal():
    cluster = Cluster(vmherd_system="pod-1")
    async with live(cluster, THERE):
        assert await found(cluster) == OtherLeader("pod-1", THERE, "vmherd")
    assert now() <= 2 * RENEWS_EVERY_S


async def test_a_lease_that_is_not_renewed_for_its_duration_has_no_live_holder():
    assert await found(Cluster(vmherd_system="crashed")) is None
    assert LEASE_S < now() <= LEASE_S + MARGIN_S + 1


async def test_a_process_that_waits_for_a_live_holder_of_its_own_lease_may_start():
    cluster = Cluster(mine="pod-2", vmherd_system="pod-1")
    async with live(cluster, HERE, THERE):
        assert await found(cluster) is None


async def test_without_the_permission_to_list_leases_a_warning_says_that_nothing_was_looked_for():
    cluster = Cluster(vmherd_system="pod-1")
    cluster.may_list = False
    with capture_logs() as logs:
        assert await found(cluster) is None
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert not any(path.endswith("/leases") for path in cluster.asked)


class Whole(Answers):
    """An API server with all kinds and with the leases of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    async def answer(self, call: Call) -> bytes:
        if "/leases" in call.path:
            return await self._cluster.answer(call)
        return await super().answer(call)


async def test_beside_a_live_leader_the_start_fails_with_one_line_that_names_the_holder_and_the_remedies():
    cluster = Cluster(vmherd_system="pod-1")
    async with live(cluster, THERE):
        with pytest.raises(StartupError) as error:
            await check(Whole(cluster), parse(["--leader-election-namespace", HERE], {}), now=wall_clock)
    assert str(error.value) == (
        "pod-1 already leads with the lease vmherd in namespace vmherd-system, but two leaders must not reconcile the "
        "same objects: wait for that lease with --leader-election-namespace vmherd-system, or write nothing with "
        "--observe, or use another --leader-election-id if the two never reconcile the same objects"
    )


# While this process leads


def leading(cluster: Cluster, *argv: str, **more: Any) -> OtherLeaders:
    return OtherLeaders(cluster, parse(argv or ("--leader-election-namespace", HERE), {}, **more))


async def test_a_leader_finds_a_leader_that_begins_later():
    cluster = Cluster(mine="this process")
    leaders = leading(cluster)
    async with live(cluster, HERE):
        assert await leaders.find() is None
        cluster.add(THERE, "pod-1")
        async with live(cluster, THERE):
            assert await leaders.find() == OtherLeader("pod-1", THERE, "vmherd")
            await asyncio.sleep(60)
            assert await leaders.find() == OtherLeader("pod-1", THERE, "vmherd")


async def test_a_lease_that_stays_the_same_costs_one_request_in_each_look_after_the_first():
    cluster = Cluster(mine="this process", vmherd_system="crashed")
    leaders = leading(cluster)
    async with live(cluster, HERE):
        assert await leaders.find() is None
        asked = len(cluster.asked)
        for _ in range(5):
            await asyncio.sleep(60)
            assert await leaders.find() is None
        assert len(cluster.asked) == asked + 5


@pytest.mark.parametrize(
    ("argv", "more"), [((), {"pod_namespace": "team"}), (("--no-leader-elect",), {}), (("--observe",), {})]
)
async def test_in_a_pod_and_without_a_lease_a_process_does_not_look_before_and_while_it_leads(argv, more):
    cluster = Cluster(vmherd_system="pod-1")
    argv = ("--leader-election-namespace", HERE, *argv)
    async with live(cluster, THERE):
        assert await found(cluster, *argv, **more) is None
        assert await leading(cluster, *argv, **more).find() is None
    assert cluster.asked == []


async def test_without_the_permission_to_list_leases_a_leader_looks_only_once():
    cluster = Cluster(vmherd_system="pod-1")
    cluster.may_list = cluster.allows = False
    leaders = leading(cluster)
    assert await leaders.find() is None
    asked = tuple(cluster.asked)
    assert asked.count(LEASES.path("")) == 1
    assert await leaders.find() is None
    assert tuple(cluster.asked) == asked


async def test_a_leader_that_loses_the_permission_fails_in_each_look_and_does_not_report_that_it_is_alone():
    cluster = Cluster(mine="this process", vmherd_system="pod-1")
    leaders = leading(cluster)
    async with live(cluster, HERE, THERE):
        assert await leaders.find() is not None
        cluster.may_list = cluster.allows = False
        for _ in range(2):
            with pytest.raises(Forbidden):
                await leaders.find()


UNCHOSEN = Config()


async def namespace_with(cluster: Cluster, config: Config = UNCHOSEN) -> str:
    return (await with_lease_namespace(cluster.leases, config)).leader_election_namespace


async def test_the_lease_that_exists_is_used_and_without_one_the_namespace_is_default():
    cluster = Cluster()
    assert await namespace_with(cluster) == "default"
    cluster.add("elsewhere", "a", name="another")
    assert await namespace_with(cluster) == "default"
    cluster.add(THERE, "a")
    assert await namespace_with(cluster) == THERE


async def test_several_leases_are_an_error_that_names_the_flag():
    with pytest.raises(SeveralLeases, match=r"a, b have a lease vmherd: choose one with --leader-election-namespace"):
        await namespace_with(Cluster(b="a", a="a"))


async def test_a_chosen_namespace_is_kept_without_a_request():
    cluster = Cluster(vmherd_system="a")
    assert await namespace_with(cluster, structs.replace(UNCHOSEN, leader_election_namespace=HERE)) == HERE
    assert await namespace_with(cluster, structs.replace(UNCHOSEN, leader_elect=False)) == "default"
    assert cluster.leases.requests == []


async def test_without_the_permission_to_list_leases_the_namespace_is_default_and_a_warning_says_so():
    cluster = Cluster(vmherd_system="a")
    cluster.leases.fault_for = lambda _: Forbidden("you may not list leases", code=403)
    with capture_logs() as logs:
        assert await namespace_with(cluster) == "default"
    assert [entry["log_level"] for entry in logs] == ["warning"]
