"""How a command finds out whether a controller renews its lease. The tests run on virtual time."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from controller.commands.command import CommandFailed, active_holder, refuse_if_controller_runs
from controller.config.settings import Config
from informers.errors import Forbidden
from tests.fakes.answers import Answering, Call
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime

THERE = "/apis/coordination.k8s.io/v1/namespaces/there/leases"


def lease(version: int, *, holder: str | None = "vm-1", namespace: str = "there", duration: int | None = 15) -> Any:
    metadata = {"namespace": namespace, "name": "vmherd", "uid": namespace, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration}}


class Leases(Answering):
    """An API server with leases. The test gives a function from the time in seconds to the leases that exist then."""

    def __init__(self, leases_at: Callable[[int], list[Any]]) -> None:
        self.leases_at = leases_at
        self.asked: list[tuple[str, str]] = []

    async def answer(self, call: Call) -> bytes:
        self.asked.append((call.path, call.params["fieldSelector"]))
        return json.dumps({"items": self.leases_at(int(now()))}).encode()


@pytest.mark.parametrize(("duration", "usual_s"), [(5, 5), (None, 15)])
async def test_a_lease_that_is_not_renewed_is_waited_for_until_it_expires(duration, usual_s):
    server = Leases(lambda second: [lease(1, duration=duration)])
    assert await active_holder(server, name="vmherd") == ""
    assert usual_s <= now() <= usual_s + 1


@pytest.mark.parametrize("leases", [[], [lease(1, holder="")], [lease(1, holder=None)]])
async def test_without_a_holder_the_command_does_not_wait(leases):
    assert await active_holder(Leases(lambda second: leases), name="vmherd") == ""
    assert now() < 1


async def test_one_active_lease_of_several_is_enough():
    server = Leases(lambda second: [lease(1, namespace="here", duration=60), lease(second, holder="vm-2")])
    assert await active_holder(server, name="vmherd") == "vm-2 holds the lease there/vmherd"


@pytest.mark.parametrize(("namespace", "path"), [("", "/apis/coordination.k8s.io/v1/leases"), ("there", THERE)])
async def test_only_leases_of_the_given_name_are_listed(namespace, path):
    server = Leases(lambda second: [])
    await active_holder(server, name="blue", namespace=namespace)
    assert server.asked == [(path, "metadata.name=blue")]


def forbidden(second: int) -> list[Any]:
    raise Forbidden("leases are forbidden", code=403)


async def refused(server: Leases, *, force: bool = False) -> str:
    try:
        await refuse_if_controller_runs(server, Config(), why="stop it", force=force)
    except CommandFailed as error:
        return str(error)
    return ""


async def test_the_error_names_the_running_controller_and_the_remedies():
    living = Leases(lambda second: [lease(second)])
    assert await refused(living) == "vm-1 holds the lease there/vmherd: stop it, or use --force"
    assert await refused(living, force=True) == ""
    assert await refused(Leases(lambda second: [])) == ""


async def test_missing_permission_for_leases_is_an_error():
    line = "cannot check whether a controller runs: leases are forbidden; --force skips this check"
    assert await refused(Leases(forbidden)) == line
