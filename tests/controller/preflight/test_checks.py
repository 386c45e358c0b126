"""The reasons why the controller refuses to start, as text. The tests run on virtual time, with an API server that has
fixed answers.
"""

import asyncio
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from controller.access import MissingPermission
from controller.config.settings import Config
from controller.preflight.checks import StartupError, resolve
from controller.takeover.second_writer import SecondWriter
from informers.errors import Forbidden, ServerError, Unauthorized
from tests.controller.takeover.answers import (
    ACCESS_REVIEWS,
    DEFINITION,
    DISCOVERY,
    MACHINES,
    OLD_POOL_DISCOVERY,
    POOL_DISCOVERY,
    POOLS,
    REFUSED,
    SERVED,
    SETS,
    UNSERVED,
    Answers,
    beside_a_kubevirt,
    not_found,
    problems,
)
from tests.fakes.virtual_time import now

pytestmark = pytest.mark.looptime

CHOSEN_LEASE = Config(leader_election_namespace="vmherd")
NAMES_TAKEN = {"type": "NamesAccepted", "status": "False", "message": '"vmirs" is already in use'}
NOT_ALLOWED = Forbidden("no", code=403)
REJECTED = Unauthorized("Unauthorized", code=401)
MISSING = f"the cluster has no {SETS}.kubevirt.io in version v1: run 'kubectl apply -f manifests/crds/'"

REFUSES = "the API server does not accept the credentials (Unauthorized)"


class Row(NamedTuple):
    """`expected` are the beginnings of the problems. They are known between `least_s` and `most_s`."""

    answers: dict[str, Any]
    expected: tuple[str, ...] = ()
    least_s: float = 0
    most_s: float = 1
    config: Config | None = None


def unanswered(why: str) -> tuple[str, ...]:
    return (f"the API server does not answer: {why}",)


CASES = {
    "no problem": Row({}),
    "a server that comes up in time": Row(
        {"/version": [REFUSED, ServerError("starting", code=500), REFUSED, {}]}, least_s=3, most_s=4
    ),
    "a server that does not answer": Row({"/version": [REFUSED]}, unanswered("connection refused"), 10, 12),
    "a refused token is not tried again": Row({"/version": [REJECTED]}, (REFUSES,)),
    "a token that is rejected after the version": Row({ACCESS_REVIEWS: [REJECTED]}, (REFUSES,)),
    "a forbidden version is an answer": Row({"/version": [NOT_ALLOWED]}),
    "no API server": Row(
        {DISCOVERY: [b"<html>welcome</html>"]}, unanswered("its address returns data that is not from an API server")
    ),
    "a cluster that forbids the permission check": Row({ACCESS_REVIEWS: [NOT_ALLOWED]}),
    "a server that fails during the checks": Row(
        {ACCESS_REVIEWS: [ServerError("etcdserver: no leader", code=500)]}, unanswered("etcdserver: no leader")
    ),
    "a kind that is not installed": Row({DISCOVERY: [UNSERVED]}, (MISSING,)),
    "all kinds are missing": Row(
        {DISCOVERY: [not_found()]},
        (MISSING, *(f"the cluster has no {each['name']}.kubevirt.io in version v1" for each in MACHINES)),
        most_s=2,
    ),
    "a kind that was just applied": Row(
        {DISCOVERY: [UNSERVED, UNSERVED, SERVED], DEFINITION: [{"status": {"conditions": None}}]}, least_s=2, most_s=3
    ),
    "a definition that may not be read": Row(
        {DISCOVERY: [UNSERVED], DEFINITION: [NOT_ALLOWED]}, (MISSING,), least_s=10, most_s=12
    ),
    "a definition that is not established": Row(
        {DISCOVERY: [UNSERVED], DEFINITION: [{"status": {"conditions": [NAMES_TAKEN]}}]},
        (f'the cluster does not serve {SETS}.kubevirt.io in version v1 ("vmirs" is already in use)',),
        least_s=10,
        most_s=12,
    ),
    "the group of the configuration": Row(
        {"/apis/vmherd.dev/v1": [not_found()]},
        (f"the cluster has no {SETS}.vmherd.dev",),
        config=Config(replicaset_group="vmherd.dev"),
    ),
    "a version that appears after the choice": Row(
        {POOL_DISCOVERY: [not_found()], OLD_POOL_DISCOVERY: [{"resources": [{"name": POOLS}]}]},
        (
            f"the cluster does not serve {POOLS}.pool.kubevirt.io in version v1beta1 "
            "(it serves version v1alpha1, which the next start uses)",
        ),
    ),
}


@pytest.mark.parametrize("row", CASES.values(), ids=CASES)
async def test_the_problems_and_the_time_until_they_are_known(row: Row):
    server = Answers()
    server.by_path |= row.answers
    found = [str(problem) for problem in await problems(server, row.config)]
    assert [problem[: len(start)] for problem, start in zip(found, row.expected, strict=True)] == list(row.expected)
    assert row.least_s <= now() < row.most_s


async def test_all_missing_permissions_are_reported_together_by_resource():
    server = Answers()
    server.denied = {("create", "virtualmachineinstances"), ("delete", "virtualmachineinstances"), ("patch", "leases")}
    assert [str(problem) for problem in await problems(server)] == [
        "missing permission: create, delete virtualmachineinstances.kubevirt.io in all namespaces; "
        "grant it to herder with a role",
        'missing permission: patch leases.coordination.k8s.io "vmherd" in namespace default; '
        "grant it to herder with a role",
    ]


async def test_a_permission_that_is_denied_once_is_checked_again():
    server = Answers()
    server.denied = {("create", "virtualmachineinstances")}
    asyncio.get_running_loop().call_later(0.5, server.denied.clear)
    assert await problems(server) == ()


async def test_a_cluster_without_pools_is_reported_and_does_not_stop_the_start():
    server = Answers()
    server.by_path["/apis/pool.vmherd.dev/v1beta1"] = [not_found()]
    with capture_logs() as lines:
        assert await problems(server, Config(pool_group="pool.vmherd.dev")) == ()
    [line] = lines
    assert (line["log_level"], line["kind"]) == ("warning", f"{POOLS}.pool.vmherd.dev")
    assert line["event"] == "the cluster does not serve this kind: its objects are reconciled as soon as it does"
    assert "--pool-group" in line["remedy"]
    assert now() < 1


async def test_a_second_writer_is_reported_together_with_the_other_problems():
    server = beside_a_kubevirt()
    server.denied = {("create", "events")}
    missing, second = await problems(server, Config(mode="standalone"))
    assert isinstance(missing, MissingPermission)
    assert isinstance(second, SecondWriter)


async def test_a_second_writer_does_not_stop_a_start_with_observe():
    assert await problems(beside_a_kubevirt(), Config(mode="takeover", observe=True)) == ()


async def test_the_mode_is_looked_up_once_the_server_answers():
    server = beside_a_kubevirt()
    server.by_path["/version"] = [REFUSED, {}]
    resolved = await resolve(server, CHOSEN_LEASE)
    assert (resolved.mode, resolved.groups) == ("alongside", ("vmherd.dev", "pool.vmherd.dev"))
    assert 1 <= now() < 2


async def test_a_mode_that_cannot_be_looked_up_is_one_line():
    server = Answers()
    server.by_path["/version"] = [REFUSED]
    with pytest.raises(StartupError, match="does not answer: connection refused"):
        await resolve(server, CHOSEN_LEASE)
    server.by_path |= {"/version": [{}], DISCOVERY: [Unauthorized("Unauthorized", code=401)]}
    with pytest.raises(StartupError, match="does not accept the credentials"):
        await resolve(server, CHOSEN_LEASE)
