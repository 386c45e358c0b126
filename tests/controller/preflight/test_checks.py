"""What stands in the way of a start, in words: on virtual time, with an API server of answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from controller.config.settings import Config
from controller.preflight.checks import (
    MissingKind,
    NoAnswer,
    NotRecognized,
    StartupError,
    UnservedKind,
    check,
    resolve_mode,
)
from controller.preflight.permissions import MissingPermission
from controller.preflight.second_writer import SecondWriter
from informers.errors import ApiError, Forbidden, NotFound, ServerError, TransportError, Unauthorized

REFUSED = TransportError("connection refused", sent=False)
SETS = "virtualmachineinstancereplicasets"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{SETS}.kubevirt.io"
DISCOVERY = "/apis/kubevirt.io/v1"
POOL_DISCOVERY = "/apis/pool.kubevirt.io/v1beta1"
POOLS = "virtualmachinepools"
MACHINES = [{"name": "virtualmachineinstances"}, {"name": "virtualmachines"}]
SERVED = {"resources": [{"name": SETS}, {"name": f"{SETS}/status"}, *MACHINES]}
UNSERVED = {"resources": MACHINES}


def not_found() -> NotFound:
    return NotFound("not found", code=404)


class Answers:
    """An API server that says what it was told to: for each path a list of answers, of which the last one stays."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str]] = set()
        self.by_path: dict[str, list[object]] = {
            "/version": [{}],
            DISCOVERY: [SERVED],
            POOL_DISCOVERY: [{"resources": [{"name": POOLS}]}],
            DEFINITION: [not_found()],
        }
        self.asked: list[str] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        await asyncio.sleep(0.01)
        self.asked.append(path)
        answer = self.reviewed(path, body) if method == "POST" else self.next(path)
        if isinstance(answer, ApiError):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def next(self, path: str) -> object:
        answers = self.by_path.get(path, [not_found()])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def reviewed(self, path: str, body: bytes | None) -> object:
        if path in self.by_path:
            return self.next(path)
        if path.endswith("/selfsubjectreviews"):
            return {"status": {"userInfo": {"username": "herder"}}}
        wanted = json.loads(body or b"")["spec"]["resourceAttributes"]
        return {"status": {"allowed": (wanted["verb"], wanted["resource"]) not in self.denied}}


ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def problems(server: Answers, config: Config | None = None) -> tuple[object, ...]:
    """What is in the way of a start."""
    try:
        await check(server, config or Config(), now=wall_clock)
    except StartupError as error:
        return error.problems
    return ()


def wall_clock() -> datetime:
    return datetime.now(UTC)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.looptime
async def test_nothing_is_in_the_way_where_all_is_well():
    assert await problems(Answers()) == ()
    assert now() < 1


@pytest.mark.looptime
async def test_a_server_that_comes_up_in_time_is_waited_for():
    server = Answers()
    server.by_path["/version"] = [REFUSED, ServerError("starting", code=500), REFUSED, {}]
    assert await problems(server) == ()
    assert 3 <= now() < 4


@pytest.mark.looptime
async def test_a_server_that_does_not_answer_is_given_up_after_ten_seconds():
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
async def test_a_token_that_is_refused_where_it_counts_is_told_as_such():
    server = Answers()
    server.by_path[ACCESS_REVIEWS] = [Unauthorized("Unauthorized", code=401)]
    assert await problems(server) == (NotRecognized("Unauthorized"),)


@pytest.mark.looptime
async def test_a_version_that_we_may_not_see_is_an_answer():
    server = Answers()
    server.by_path["/version"] = [Forbidden("no", code=403)]
    assert await problems(server) == ()


@pytest.mark.looptime
async def test_something_else_that_answers_is_told_as_such():
    server = Answers()
    server.by_path[DISCOVERY] = [b"<html>welcome</html>"]
    assert await problems(server) == (NoAnswer("whatever answers in its place speaks another language"),)


@pytest.mark.looptime
async def test_all_missing_permissions_are_told_at_once_by_resource():
    server = Answers()
    server.denied = {("create", "virtualmachineinstances"), ("delete", "virtualmachineinstances"), ("patch", "leases")}
    assert [str(problem) for problem in await problems(server)] == [
        "missing permission: create, delete virtualmachineinstances.kubevirt.io in all namespaces; "
        "a role has to give it to herder",
        'missing permission: patch leases.coordination.k8s.io "vmherd" in namespace default; '
        "a role has to give it to herder",
    ]


@pytest.mark.looptime
async def test_what_a_server_refuses_while_it_starts_is_asked_again():
    server = Answers()
    server.denied = {("create", "virtualmachineinstances")}
    asyncio.get_running_loop().call_later(0.5, server.denied.clear)
    assert await problems(server) == ()


@pytest.mark.looptime
async def test_permissions_are_asked_for_all_together():
    server = Answers()
    await problems(server, Config(watch_namespaces=tuple(f"team-{number}" for number in range(50))))
    assert server.asked.count(ACCESS_REVIEWS) > 500
    assert now() < 1


@pytest.mark.looptime
async def test_a_missing_permission_is_told_for_its_namespace():
    server = Answers()
    server.denied = {("list", SETS)}
    lines = [str(problem) for problem in await problems(server, Config(watch_namespaces=("blue", "green")))]
    assert [line.partition(";")[0] for line in lines] == [
        f"missing permission: list {SETS}.kubevirt.io in namespace blue",
        f"missing permission: list {SETS}.kubevirt.io in namespace green",
    ]


@pytest.mark.looptime
async def test_a_cluster_that_lets_nobody_ask_about_permissions_stops_no_start():
    server = Answers()
    server.by_path[ACCESS_REVIEWS] = [Forbidden("no", code=403)]
    assert await problems(server) == ()


@pytest.mark.looptime
async def test_a_server_that_fails_during_the_checks_is_one_line():
    server = Answers()
    server.by_path[ACCESS_REVIEWS] = [ServerError("etcdserver: no leader", code=500)]
    assert await problems(server) == (NoAnswer("etcdserver: no leader"),)


@pytest.mark.looptime
async def test_a_kind_that_nobody_installed_is_told_at_once_with_what_installs_it():
    server = Answers()
    server.by_path[DISCOVERY] = [UNSERVED]
    [problem] = await problems(server)
    assert isinstance(problem, MissingKind)
    told = f"the cluster has no {SETS}.kubevirt.io in version v1: kubectl apply -f manifests/crds/, or crds.enabled"
    assert str(problem).startswith(told)
    assert now() < 1


@pytest.mark.looptime
async def test_every_missing_kind_is_told():
    server = Answers()
    server.by_path[DISCOVERY] = [not_found()]
    found = await problems(server)
    assert [problem.kind.plural for problem in found if isinstance(problem, MissingKind)] == [
        SETS,
        "virtualmachineinstances",
        "virtualmachines",
    ]


@pytest.mark.looptime
async def test_missing_kinds_and_permissions_are_told_together_without_waiting_for_the_kinds():
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
async def test_a_kind_whose_definition_is_not_ours_to_read_is_waited_for_and_then_told_as_missing():
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
async def test_the_group_of_the_pools_is_the_one_configured():
    server = Answers()
    server.by_path["/apis/pool.vmherd.dev/v1beta1"] = [not_found()]
    [problem] = await problems(server, Config(pool_group="pool.vmherd.dev"))
    assert f"{POOLS}.pool.vmherd.dev" in str(problem)
    assert "--pool-group" in str(problem)


KUBEVIRTS = "/apis/kubevirt.io/v1/kubevirts"
VIRT_CONTROLLER = "/apis/apps/v1/namespaces/kubevirt/deployments/virt-controller"


def beside_a_kubevirt() -> Answers:
    """A cluster whose KubeVirt works on both kinds."""
    server = Answers()
    server.by_path |= {
        DISCOVERY: [{"resources": [*SERVED["resources"], {"name": "kubevirts"}]}],
        KUBEVIRTS: [{"items": [{"metadata": {"namespace": "kubevirt", "name": "kubevirt"}}]}],
        VIRT_CONTROLLER: [{"spec": {"template": {"spec": {"containers": []}}}}],
    }
    return server


@pytest.mark.looptime
async def test_a_second_writer_is_told_together_with_what_else_is_wrong():
    server = beside_a_kubevirt()
    server.denied = {("create", "events")}
    missing, second = await problems(server, Config(mode="standalone"))
    assert isinstance(missing, MissingPermission)
    assert isinstance(second, SecondWriter)


@pytest.mark.looptime
async def test_an_onlooker_may_look_on_beside_a_second_writer():
    assert await problems(beside_a_kubevirt(), Config(mode="takeover", observe=True)) == ()


@pytest.mark.looptime
async def test_the_mode_is_looked_up_once_the_server_answers():
    server = beside_a_kubevirt()
    server.by_path["/version"] = [REFUSED, {}]
    settled = await resolve_mode(server, Config())
    assert (settled.mode, settled.groups) == ("alongside", ("vmherd.dev", "pool.vmherd.dev"))
    assert 1 <= now() < 2


@pytest.mark.looptime
async def test_a_mode_that_was_chosen_needs_no_server():
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
    with pytest.raises(StartupError, match="does not accept our credentials"):
        await resolve_mode(server, Config())


@pytest.mark.looptime
async def test_alongside_a_kubevirt_a_missing_kind_is_told_as_one_of_ours():
    config = Config(mode="alongside", replicaset_group="vmherd.dev", pool_group="pool.vmherd.dev")
    found = await problems(beside_a_kubevirt(), config)
    assert [str(problem).partition(" in version")[0] for problem in found] == [
        f"the cluster has no {SETS}.vmherd.dev",
        f"the cluster has no {POOLS}.pool.vmherd.dev",
    ]
    assert all("alongside" in str(problem) for problem in found)
