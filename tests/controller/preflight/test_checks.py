"""The reasons why the controller refuses to start, as text. The tests run on virtual time, with an API server that has
fixed answers.
"""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from controller.access import MissingPermission
from controller.config.settings import Config
from controller.preflight.checks import (
    MissingKind,
    NoAnswer,
    NotRecognized,
    StartupError,
    UnservedKind,
    resolve_mode,
)
from controller.takeover.second_writer import SecondWriter
from informers.errors import Forbidden, ServerError, Unauthorized
from tests.controller.takeover.answers import (
    ACCESS_REVIEWS,
    DEFINITION,
    DISCOVERY,
    LATENCY_S,
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
    now,
    problems,
)


@pytest.mark.looptime
async def test_without_a_problem_the_check_passes():
    assert await problems(Answers()) == ()
    assert now() < 1


@pytest.mark.looptime
async def test_a_server_that_comes_up_in_time_is_waited_for():
    server = Answers()
    server.by_path["/version"] = [REFUSED, ServerError("starting", code=500), REFUSED, {}]
    assert await problems(server) == ()
    assert 3 <= now() < 4


@pytest.mark.looptime
async def test_the_start_fails_if_the_server_does_not_answer_within_ten_seconds():
    server = Answers()
    server.by_path["/version"] = [REFUSED]
    assert await problems(server) == (NoAnswer("connection refused"),)
    assert 10 <= now() < 12


@pytest.mark.looptime
async def test_a_refused_token_is_not_tried_again():
    server = Answers()
    server.by_path["/version"] = [Unauthorized("Unauthorized", code=401)]
    assert await problems(server) == (NotRecognized("Unauthorized"),)
    assert now() < 1


@pytest.mark.looptime
async def test_a_token_that_is_rejected_after_version_is_reported_as_such():
    server = Answers()
    server.by_path[ACCESS_REVIEWS] = [Unauthorized("Unauthorized", code=401)]
    assert await problems(server) == (NotRecognized("Unauthorized"),)


@pytest.mark.looptime
async def test_a_forbidden_version_counts_as_an_answer():
    server = Answers()
    server.by_path["/version"] = [Forbidden("no", code=403)]
    assert await problems(server) == ()


@pytest.mark.looptime
async def test_an_answer_that_is_not_from_an_api_server_is_reported():
    server = Answers()
    server.by_path[DISCOVERY] = [b"<html>welcome</html>"]
    assert await problems(server) == (NoAnswer("its address returns data that is not from an API server"),)


@pytest.mark.looptime
async def test_all_missing_permissions_are_reported_together_by_resource():
    server = Answers()
    server.denied = {("create", "virtualmachineinstances"), ("delete", "virtualmachineinstances"), ("patch", "leases")}
    assert [str(problem) for problem in await problems(server)] == [
        "missing permission: create, delete virtualmachineinstances.kubevirt.io in all namespaces; "
        "grant it to herder with a role",
        'missing permission: patch leases.coordination.k8s.io "vmherd" in namespace default; '
        "grant it to herder with a role",
    ]


@pytest.mark.looptime
async def test_a_permission_that_is_denied_once_is_checked_again():
    server = Answers()
    server.denied = {("create", "virtualmachineinstances")}
    asyncio.get_running_loop().call_later(0.5, server.denied.clear)
    assert await problems(server) == ()


@pytest.mark.looptime
async def test_permissions_are_checked_concurrently():
    server = Answers()
    await problems(server, Config(watch_namespaces=tuple(f"team-{number}" for number in range(50))))
    number = server.asked.count(ACCESS_REVIEWS)
    assert number > 500
    assert now() < number * LATENCY_S / 15, "more than fifteen at once"


@pytest.mark.looptime
async def test_a_missing_permission_names_its_namespace():
    server = Answers()
    server.denied = {("list", SETS)}
    lines = [str(problem) for problem in await problems(server, Config(watch_namespaces=("blue", "green")))]
    assert [line.partition(";")[0] for line in lines] == [
        f"missing permission: list {SETS}.kubevirt.io in namespace blue",
        f"missing permission: list {SETS}.kubevirt.io in namespace green",
    ]


@pytest.mark.looptime
async def test_a_cluster_that_forbids_the_permission_check_does_not_stop_the_start():
    server = Answers()
    server.by_path[ACCESS_REVIEWS] = [Forbidden("no", code=403)]
    assert await problems(server) == ()


@pytest.mark.looptime
async def test_a_server_that_fails_during_the_checks_is_one_line():
    server = Answers()
    server.by_path[ACCESS_REVIEWS] = [ServerError("etcdserver: no leader", code=500)]
    assert await problems(server) == (NoAnswer("etcdserver: no leader"),)


@pytest.mark.looptime
async def test_a_kind_that_is_not_installed_is_reported_at_once_with_its_remedy():
    server = Answers()
    server.by_path[DISCOVERY] = [UNSERVED]
    [problem] = await problems(server)
    assert isinstance(problem, MissingKind)
    beginning = f"the cluster has no {SETS}.kubevirt.io in version v1: run 'kubectl apply -f manifests/crds/'"
    assert str(problem).startswith(beginning)
    assert now() < 1


@pytest.mark.looptime
async def test_every_missing_kind_is_reported():
    server = Answers()
    server.by_path[DISCOVERY] = [not_found()]
    found = await problems(server)
    assert [problem.kind.plural for problem in found if isinstance(problem, MissingKind)] == [
        SETS,
        "virtualmachineinstances",
        "virtualmachines",
    ]


@pytest.mark.looptime
async def test_missing_kinds_and_permissions_are_reported_together_without_waiting_for_the_kinds():
    server = Answers()
    server.denied = {("create", "events")}
    server.by_path |= {DISCOVERY: [UNSERVED], DEFINITION: [Forbidden("no", code=403)]}
    assert len(await problems(server)) == 2
    assert now() < 2


@pytest.mark.looptime
async def test_a_kind_that_was_just_applied_is_waited_for():
    server = Answers()
    server.by_path |= {DISCOVERY: [UNSERVED, UNSERVED, SERVED], DEFINITION: [{"status": {"conditions": None}}]}
    assert await problems(server) == ()
    assert 2 <= now() < 3


@pytest.mark.looptime
async def test_a_kind_whose_definition_we_may_not_read_is_waited_for_and_then_reported_as_missing():
    server = Answers()
    server.by_path |= {DISCOVERY: [UNSERVED], DEFINITION: [Forbidden("no", code=403)]}
    [problem] = await problems(server)
    assert isinstance(problem, MissingKind)
    assert 10 <= now() < 12


@pytest.mark.looptime
async def test_a_definition_that_is_not_established_says_why():
    conditions = [{"type": "NamesAccepted", "status": "False", "message": '"vmirs" is already in use'}]
    server = Answers()
    server.by_path |= {DISCOVERY: [UNSERVED], DEFINITION: [{"status": {"conditions": conditions}}]}
    [problem] = await problems(server)
    assert isinstance(problem, UnservedKind)
    assert '("vmirs" is already in use)' in str(problem)


@pytest.mark.looptime
async def test_the_group_of_the_sets_is_the_one_configured():
    server = Answers()
    server.by_path["/apis/vmherd.dev/v1"] = [not_found()]
    [problem] = await problems(server, Config(replicaset_group="vmherd.dev"))
    assert f"{SETS}.vmherd.dev" in str(problem)


@pytest.mark.looptime
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


@pytest.mark.looptime
async def test_pools_are_served_in_the_chosen_version():
    server = Answers()
    server.by_path |= {POOL_DISCOVERY: [not_found()], OLD_POOL_DISCOVERY: [{"resources": [{"name": POOLS}]}]}
    with capture_logs() as lines:
        assert await problems(server, Config(versions={"pool": "v1alpha1"})) == ()
    assert lines == []


@pytest.mark.looptime
async def test_a_version_that_appears_after_the_choice_needs_a_new_start():
    server = Answers()
    server.by_path |= {POOL_DISCOVERY: [not_found()], OLD_POOL_DISCOVERY: [{"resources": [{"name": POOLS}]}]}
    [problem] = await problems(server)
    assert isinstance(problem, UnservedKind)
    assert "it serves version v1alpha1, which the next start uses" in str(problem)


@pytest.mark.looptime
async def test_a_second_writer_is_reported_together_with_the_other_problems():
    server = beside_a_kubevirt()
    server.denied = {("create", "events")}
    missing, second = await problems(server, Config(mode="standalone"))
    assert isinstance(missing, MissingPermission)
    assert isinstance(second, SecondWriter)


@pytest.mark.looptime
async def test_a_second_writer_does_not_stop_a_start_with_observe():
    assert await problems(beside_a_kubevirt(), Config(mode="takeover", observe=True)) == ()


@pytest.mark.looptime
async def test_the_mode_is_looked_up_once_the_server_answers():
    server = beside_a_kubevirt()
    server.by_path["/version"] = [REFUSED, {}]
    resolved = await resolve_mode(server, Config())
    assert (resolved.mode, resolved.groups) == ("alongside", ("vmherd.dev", "pool.vmherd.dev"))
    assert 1 <= now() < 2


@pytest.mark.looptime
async def test_a_chosen_mode_needs_no_request():
    server = Answers()
    assert await resolve_mode(server, Config(mode="takeover")) == Config(mode="takeover")
    assert server.asked == []


@pytest.mark.looptime
async def test_a_mode_that_cannot_be_looked_up_is_one_line():
    server = Answers()
    server.by_path["/version"] = [REFUSED]
    with pytest.raises(StartupError, match="does not answer: connection refused"):
        await resolve_mode(server, Config())
    server.by_path |= {"/version": [{}], DISCOVERY: [Unauthorized("Unauthorized", code=401)]}
    with pytest.raises(StartupError, match="does not accept the credentials"):
        await resolve_mode(server, Config())


@pytest.mark.looptime
async def test_alongside_a_kubevirt_a_missing_kind_is_reported_in_our_own_group():
    config = Config(mode="alongside", replicaset_group="vmherd.dev", pool_group="pool.vmherd.dev")
    found = await problems(beside_a_kubevirt(), config)
    assert [str(problem).partition(" in version")[0] for problem in found] == [
        f"the cluster has no {SETS}.vmherd.dev",
        f"the cluster has no {POOLS}.pool.vmherd.dev",
    ]
    assert all("alongside" in str(problem) for problem in found)
