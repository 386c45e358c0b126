"""If the cluster already has a lease, a process outside the cluster uses this lease. So this process and another
controller never lead at the same time.
"""

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from controller.config.settings import Config
from controller.leaderelection.lease import LEASES
from controller.leaderelection.other_leader import SeveralLeases, with_lease_namespace
from informers.errors import Forbidden
from tests.fakes.apiserver import FakeApiServer

UNCHOSEN = Config()


def server_with(*namespaces: str, name: str = "vmherd") -> FakeApiServer:
    server = FakeApiServer(latency_s=0, serves=[LEASES])
    for namespace in namespaces:
        server.put(LEASES, {"metadata": {"namespace": namespace, "name": name}, "spec": {"holderIdentity": "a"}})
    return server


async def namespace_with(server: FakeApiServer, config: Config = UNCHOSEN) -> str:
    return (await with_lease_namespace(server, config)).leader_election_namespace


async def test_the_lease_that_exists_is_used():
    assert await namespace_with(server_with("vmherd-system")) == "vmherd-system"


async def test_without_a_lease_the_namespace_is_default():
    assert await namespace_with(server_with()) == "default"
    assert await namespace_with(server_with("elsewhere", name="another")) == "default"


async def test_several_leases_are_an_error_that_names_the_flag():
    with pytest.raises(SeveralLeases, match=r"a, b have a lease vmherd: choose one with --leader-election-namespace"):
        await namespace_with(server_with("b", "a"))


async def test_a_chosen_namespace_is_kept_without_a_request():
    server = server_with("vmherd-system")
    assert await namespace_with(server, structs.replace(UNCHOSEN, leader_election_namespace="mine")) == "mine"
    assert await namespace_with(server, structs.replace(UNCHOSEN, leader_elect=False)) == "default"
    assert server.requests == []


async def test_without_the_permission_to_list_leases_the_namespace_is_default_and_a_warning_says_so():
    server = server_with("vmherd-system")
    server.fault_for = lambda _: Forbidden("you may not list leases", code=403)
    with capture_logs() as logs:
        assert await namespace_with(server) == "default"
    assert [entry["log_level"] for entry in logs] == ["warning"]
