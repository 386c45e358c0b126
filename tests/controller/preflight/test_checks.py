"""The reasons why the controller refuses to start, as text. The tests run on virtual time, with an API server that has
fixed answers.
"""

from typing import Any

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

CASES: dict[str, tuple[dict[str, Any], Config | None, list[str], tuple[float, float]]] = {
    # name: (answers, configuration, beginnings of the problems, least and greatest time)
    "no problem": ({}, None, [], (0, 1)),
    "a server that comes up in time": (
        {"/version": [REFUSED, ServerError("starting", code=500), REFUSED, {}]},
        None,
        [],
        (3, 4),
    ),
    "a server that does not answer": (
        {"/version": [REFUSED]},
        None,
        ["the API server does not answer: connection refused"],
        (10, 12),
    ),
    "a refused token is not tried again": (
        {"/version": [REJECTED]},
        None,
        ["the API server does not accept the credentials (Unauthorized)"],
        (0, 1),
    ),
    "a token that is rejected after the version": (
        {ACCESS_REVIEWS: [REJECTED]},
        None,
        ["the API server does not accept the credentials (Unauthorized)"],
        (0, 1),
    ),
    "a forbidden version is an answer": ({"/version": [NOT_ALLOWED]}, None, [], (0, 1)),
    "no API server": (
        {DISCOVERY: [b"<html>welcome</html>"]},
        None,
        ["the API server does not answer: its address returns data that is not from an API server"],
        (0, 1),
    ),
    "a cluster that forbids the permission check": ({ACCESS_REVIEWS: [NOT_ALLOWED]}, None, [], (0, 1)),
    "a server that fails during the checks": (
        {ACCESS_REVIEWS: [ServerError("etcdserver: no leader", code=500)]},
        None,
        ["the API server does not answer: etcdserver: no leader"],
        (0, 1),
    ),
    "a kind that is not installed": ({DISCOVERY: [UNSERVED]}, None, [MISSING], (0, 1)),
    "all kinds are missing": (
        {DISCOVERY: [not_found()]},
        None,
        [MISSING, *(f"the cluster has no {each['name']}.kubevirt.io in version v1" for each in MACHINES)],
        (0, 2),
    ),
    "a kind that was just applied": (
        {DISCOVERY: [UNSERVED, UNSERVED, SERVED], DEFINITION: [{"status": {"conditions": None}}]},
        None,
        [],
        (2, 3),
    ),
    "a definition that may not be read": (
        {DISCOVERY: [UNSERVED], DEFINITION: [NOT_ALLOWED]},
        None,
        [MISSING],
        (10, 12),
    ),
    "a definition that is not established": (
        {DISCOVERY: [UNSERVED], DEFINITION: [{"status": {"conditions": [NAMES_TAKEN]}}]},
        None,
        [f'the cluster does not serve {SETS}.kubevirt.io in version v1 ("vmirs" is already in use)'],
        (10, 12),
    ),
    "the group of the configuration": (
        {"/apis/vmherd.dev/v1": [not_found()]},
        Config(replicaset_group="vmherd.dev"),
        [f"the cluster has no {SETS}.vmherd.dev"],
        (0, 1),
    ),
    "a version that appears after the choice": (
        {POOL_DISCOVERY: [not_found()], OLD_POOL_DISCOVERY: [{"resources": [{"name": POOLS}]}]},
        None,
        [
            f"the cluster does not serve {POOLS}.pool.kubevirt.io in version v1beta1 "
            "(it serves version v1alpha1, which the next start uses)"
        ],
        (0, 1),
    ),
}


@pytest.mark.parametrize(("answers", "config", "expected", "times"), CASES.values(), ids=CASES)
async def test_the_problems_and_the_time_until_they_are_known(
    answers: dict[str, Any], config: Config | None, expected: list[str], times: tuple[float, float]
):
    server = Answers()
    server.by_path |= answers
    found = [str(problem) for problem in await problems(server, config)]
    assert [problem[: len(start)] for problem, start in zip(found, expected, strict=True)] == expected
    assert times[0] <= now() < times[1]


async def test_all_missing_permissions_are_reported_together_by_resource():
    server = Answers()
    server.denied = {("create", "virtualmachineinstances"), ("delete", "virtualmachineinstances"), ("patch", "leases")}
    assert [str(problem) for problem in await problems(server)] == [
        "missing permission: create, delete virtualmachineinstances.kubevirt.io in all namespaces; "
        "grant it to herder with a role",
        'missing permission: patch leases.coordination.k8s.io "vmherd" in namespace default; '
        "grant it to herder with a role",
    ]


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
