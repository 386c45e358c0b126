"""The check whether virt-controller also reconciles the kinds of this controller. The API server is a fake with fixed
answers, and the time is virtual.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.config.settings import Config
from controller.takeover.second_writer import SecondWriter, Undetermined, decide_mode, find_second_writer
from informers.errors import Forbidden, NotFound
from tests.command_line import parse
from tests.controller.takeover import answers
from tests.fakes.answers import AnswersByPath

pytestmark = pytest.mark.looptime

NOW = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)
GROUP = "/apis/kubevirt.io/v1"
KUBEVIRTS = f"{GROUP}/kubevirts"
DEPLOYMENT = "/apis/apps/v1/namespaces/kubevirt/deployments/virt-controller"
SETS = "/apis/kubevirt.io/v1/virtualmachineinstancereplicasets"
POOLS = "/apis/pool.kubevirt.io/v1beta1/virtualmachinepools"
RESTING = ("--rs-controller-threads=0", "--pool-controller-threads=0")

DENIED = Forbidden("you may not", code=403)
NONE = NotFound("not found", code=404)
EMPTY: dict[str, Any] = {"items": []}


class Cluster(AnswersByPath):
    def __init__(self, answers: Mapping[str, list[Any]] = {}) -> None:
        super().__init__(
            {
                GROUP: [{"resources": [{"name": "kubevirts"}]}],
                KUBEVIRTS: [{"items": [{"metadata": {"namespace": "kubevirt", "name": "kubevirt"}}]}],
                DEPLOYMENT: [deployment()],
                SETS: [EMPTY],
                POOLS: [EMPTY],
                **answers,
            }
        )


def deployment(*args: str, generation: int = 1, seen: int = 1) -> dict[str, Any]:
    spec = {"template": {"spec": {"containers": [{"name": "virt-controller", "args": list(args)}]}}}
    return {
        "metadata": {"generation": generation},
        "spec": spec,
        "status": {"observedGeneration": seen, "replicas": 2, "updatedReplicas": 2},
    }


def written(*, ago: timedelta, manager: str = "virt-controller", subresource: str = "status") -> dict[str, Any]:
    fields = {"manager": manager, "subresource": subresource, "time": (NOW - ago).isoformat()}
    return {"items": [{"metadata": {"namespace": "blue", "name": "herd", "managedFields": [fields]}}]}


async def objections(cluster: Cluster, *argv: str) -> tuple[object, ...]:
    config = parse(argv or ["--mode", "standalone"], {})
    deadline = asyncio.get_running_loop().time() + 10
    return await find_second_writer(cluster, config, now=lambda: NOW, deadline=deadline)


async def objection(cluster: Cluster, *argv: str) -> str:
    [found] = await objections(cluster, *argv)
    assert isinstance(found, SecondWriter)
    assert "\n" not in str(found)
    return str(found)


@pytest.mark.parametrize("absent", [{GROUP: [{"resources": []}]}, {GROUP: [NONE]}, {KUBEVIRTS: [EMPTY]}])
async def test_without_a_kubevirt_there_is_no_second_writer(absent):
    cluster = Cluster(absent)
    assert await objections(cluster) == ()
    assert DEPLOYMENT not in cluster.asked


LATE, FOREIGN = written(ago=timedelta(minutes=11)), written(ago=timedelta(seconds=1), manager="vmherd")
OF_SPEC = written(ago=timedelta(seconds=1), subresource="")
ALONE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "stopped loops, despite a recent write": (
        {DEPLOYMENT: [deployment(*RESTING)], SETS: [written(ago=timedelta(seconds=5))]},
        ["--mode", "takeover"],
    ),
    "a loop for a kind that is not shared": (
        {DEPLOYMENT: [deployment(RESTING[0])]},
        ["--pool-group", "pool.vmherd.dev"],
    ),
    **{
        f"no deployment, and {name}": ({DEPLOYMENT: [NONE], SETS: [page]}, [])
        for name, page in {"no write": EMPTY, "late": LATE, "foreign": FOREIGN, "of the spec": OF_SPEC}.items()
    },
}


@pytest.mark.parametrize(("answers", "argv"), ALONE.values(), ids=ALONE)
async def test_there_is_no_second_writer(answers, argv):
    assert await objections(Cluster(answers), *argv) == ()


@pytest.mark.parametrize("argv", [["--mode", "alongside"], ["--mode", "takeover", "--no-second-writer-check"]])
async def test_no_request_is_sent_if_no_kind_is_shared_or_the_check_is_disabled(argv):
    cluster = Cluster()
    assert await objections(cluster, *argv) == ()
    assert cluster.asked == []


async def test_a_rollout_is_waited_for():
    cluster = Cluster()
    rolling = deployment(*RESTING, generation=2, seen=1)
    cluster.by_path[DEPLOYMENT] = [rolling, rolling, deployment(*RESTING, generation=2, seen=2)]
    assert await objections(cluster, "--mode", "takeover") == ()
    assert 2 <= asyncio.get_running_loop().time() < 3


async def test_a_rollout_that_takes_too_long_is_reported():
    assert "Deployment kubevirt/virt-controller is rolling out" in await objection(
        Cluster({DEPLOYMENT: [deployment(*RESTING, generation=2, seen=1)]}), "--mode", "takeover"
    )


@pytest.mark.parametrize("hidden", [{KUBEVIRTS: [DENIED]}, {DEPLOYMENT: [DENIED]}])
async def test_without_permission_to_read_kubevirt_the_start_fails_and_names_the_permission(hidden):
    [found] = await objections(Cluster(hidden))
    assert isinstance(found, Undetermined)
    assert "you may not" in str(found)
    assert all(way in str(found) for way in ("with a role", "--mode alongside", "--no-second-writer-check"))


@pytest.mark.parametrize(
    ("ago_s", "told"), [(90, "blue/herd 90s ago"), (-180, "blue/herd 0s ago")], ids=["recent", "our clock is behind"]
)
@pytest.mark.parametrize("place", [SETS, POOLS])
@pytest.mark.parametrize("hidden", [{KUBEVIRTS: [DENIED]}, {DEPLOYMENT: [DENIED]}, {DEPLOYMENT: [NONE]}])
async def test_without_permission_to_read_kubevirt_a_recent_write_shows_the_second_writer(place, hidden, ago_s, told):
    assert told in await objection(Cluster({**hidden, place: [written(ago=timedelta(seconds=ago_s))]}))


async def test_every_page_of_a_list_is_read():
    cluster = Cluster()
    more = {**EMPTY, "metadata": {"continue": "x"}}
    cluster.by_path |= {DEPLOYMENT: [NONE], POOLS: [more, written(ago=timedelta(seconds=3))]}
    assert "blue/herd 3s ago" in await objection(cluster)


@pytest.mark.parametrize(
    ("answers", "mode", "groups"),
    [
        ({GROUP: [NONE]}, "standalone", ("kubevirt.io", "pool.kubevirt.io")),
        ({KUBEVIRTS: [EMPTY]}, "standalone", ("kubevirt.io", "pool.kubevirt.io")),
        ({}, "alongside", ("vmherd.dev", "pool.vmherd.dev")),
        ({KUBEVIRTS: [DENIED]}, "alongside", ("vmherd.dev", "pool.vmherd.dev")),
        ({DEPLOYMENT: [deployment(*RESTING)]}, "alongside", ("vmherd.dev", "pool.vmherd.dev")),
    ],
)
async def test_auto_is_alongside_if_a_kubevirt_is_or_may_be_installed(answers, mode, groups):
    decided = await decide_mode(Cluster(answers), Config())
    assert (decided.mode, decided.groups) == (mode, groups)


async def test_a_chosen_mode_is_kept():
    cluster = Cluster()
    config = parse(["--mode", "standalone"], {})
    assert await decide_mode(cluster, config) == config
    assert cluster.asked == []


# The version of KubeVirt


def with_version(version: str, *args: str) -> answers.Answers:
    server = answers.beside_a_kubevirt()
    kubevirt = {"metadata": {"namespace": "kubevirt", "name": "kubevirt"}, "status": {}}
    if version:
        kubevirt["status"] = {"observedKubeVirtVersion": version}
    server.by_path |= {answers.KUBEVIRTS: [{"items": [kubevirt]}], answers.VIRT_CONTROLLER: [deployment(*args)]}
    return server


@pytest.mark.parametrize("version", ["v1.2.3", "v1.3.0", "v1.9.0-rc.0", "v2.0.0", "", "devel", "v0.0.0-master+abc"])
async def test_only_an_unsupported_version_of_kubevirt_is_a_warning(version: str):
    with capture_logs() as lines:
        assert await answers.problems(with_version(version, *RESTING), Config(mode="takeover")) == ()
    told = [(line["log_level"], line["found"], line["oldest"]) for line in lines]
    assert told == ([("warning", "v1.2.3", "1.3")] if version == "v1.2.3" else [])


async def test_a_kubevirt_without_the_flag_for_pools_cannot_be_taken_over():
    found = await answers.problems(with_version("v0.48.1", *RESTING), Config(mode="takeover"))
    [problem] = found
    assert str(problem).startswith("KubeVirt v0.48.1 cannot be taken over")
    assert "upgrade KubeVirt to 1.3 or newer, or use --mode alongside" in str(problem)


async def test_without_the_permission_to_list_kubevirts_the_version_is_not_checked():
    server = with_version("v0.48.1")
    server.denied = {("list", "kubevirts")}
    config = Config(mode="alongside", replicaset_group="vmherd.dev", pool_group="pool.vmherd.dev")
    server.by_path |= {
        "/apis/vmherd.dev/v1": [{"resources": [{"name": answers.SETS}]}],
        "/apis/pool.vmherd.dev/v1beta1": [{"resources": [{"name": answers.POOLS}]}],
    }
    assert await answers.problems(server, config) == ()
    assert answers.KUBEVIRTS not in server.asked
