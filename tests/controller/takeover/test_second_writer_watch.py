"""A second writer is another controller that writes the same objects.

While KubeVirt's loops run or another process leads, vmherd writes nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from controller.running import running
from controller.runtime.actions import Notice
from controller.takeover.other_process import QUIET_S, WriterSample
from controller.takeover.second_writer import INTERVAL_S, SecondWriterWatch
from informers.errors import GateClosed, TransportError
from informers.meta import ObjectKey
from tests.command_line import parse
from tests.controller.leaderelection.test_other_leader import Cluster as Leases
from tests.controller.leaderelection.test_other_leader import live
from tests.controller.takeover.test_second_writer import DENIED, DEPLOYMENT, NOW, RESTING, Cluster, deployment
from tests.fakes.answers import Answering, AnswersByPath, Call
from tests.pool_builders import POOLS


class LeaseCluster(Leases):
    """A cluster with leases and with KubeVirt."""

    def __init__(self, **holders: str) -> None:
        super().__init__(**holders)
        self.loops = resting()

    async def answer(self, call: Call) -> bytes:
        is_for_leases = "/leases" in call.path or call.path.endswith("/selfsubjectaccessreviews")
        return await (super().answer(call) if is_for_leases else self.loops.answer(call))


class Told:
    """Records the Events, and the values of the metric for a second writer. For each Event, `blocked` says whether
    writes were stopped at that time.
    """

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.blocked: list[bool] = []
        self.metric: list[bool] = []
        self.watch: SecondWriterWatch | None = None

    def report(self, found: bool) -> None:
        self.metric.append(found)

    async def announce(self, notice: Notice) -> None:
        assert self.watch is not None
        self.notices.append(notice)
        self.blocked.append(bool(self.watch.reason))


@asynccontextmanager
async def watching(
    cluster: Answering, *argv: str, pod_namespace: str = "vmherd"
) -> AsyncIterator[tuple[SecondWriterWatch, Told]]:
    told = Told()
    config = parse(argv or ["--mode", "takeover"], {}, pod_namespace=pod_namespace)
    watch = told.watch = SecondWriterWatch(cluster, config, now=lambda: NOW, report=told.report)
    async with running(watch.run(told.announce, WriterSample(cluster, "pod-0", lambda: ()))):
        yield watch, told


def resting() -> Cluster:
    return Cluster({DEPLOYMENT: [deployment(*RESTING)]})


async def test_the_writes_stop_within_a_minute_after_the_loops_come_back_and_begin_again():
    cluster = resting()
    with capture_logs() as logs:
        async with watching(cluster) as (watch, told):
            await asyncio.sleep(INTERVAL_S * 2.5)
            cluster.by_path[DEPLOYMENT] = [deployment("--rs-controller-threads=0")]
            await asyncio.sleep(INTERVAL_S)
            with pytest.raises(GateClosed, match="KubeVirt reconciles virtualmachinepools"):
                watch.gate()
            assert "virtualmachinepools" in (watch.ready() or "")
            assert told.metric[-1] is True
            await asyncio.sleep(5 * INTERVAL_S)
            cluster.by_path[DEPLOYMENT] = [deployment(*RESTING)]
            await asyncio.sleep(INTERVAL_S)
            watch.gate()
            assert told.metric[-1] is False
    assert [notice.reason for notice in told.notices] == ["SecondWriter", "SecondWriterGone"]
    assert told.blocked == [False, False], "an Event is a write too"
    assert [entry["log_level"] for entry in logs] == ["error", "info"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({DEPLOYMENT: [deployment(*RESTING, generation=2)]}, id="rolling out"),
        pytest.param({DEPLOYMENT: [DENIED]}, id="denied"),
        pytest.param({DEPLOYMENT: [TransportError("refused", sent=False)]}, id="no answer"),
    ],
)
async def test_an_inconclusive_check_does_not_stop_the_writes(answer):
    cluster = resting()
    cluster.by_path |= answer
    async with watching(cluster) as (watch, told):
        await asyncio.sleep(3.5 * INTERVAL_S)
        watch.gate()
    assert told.notices == []


@pytest.mark.parametrize("flags", [["--no-second-writer-check"], ["--observe"]])
async def test_without_the_check_no_request_is_sent(flags):
    cluster = Cluster()
    async with watching(cluster, "--mode", "takeover", *flags) as (watch, _):
        await asyncio.sleep(3 * INTERVAL_S)
        watch.gate()
    assert cluster.asked == []


async def test_the_writes_stop_while_another_vmherd_leads_with_another_lease():
    cluster = LeaseCluster(mine="this process")
    with capture_logs() as logs:
        outside = watching(cluster, "--leader-election-namespace", "mine", pod_namespace="")
        async with outside as (watch, told), live(cluster, "mine"):
            await asyncio.sleep(1.5 * INTERVAL_S)
            watch.gate()
            cluster.add("vmherd-system", "pod-1")
            async with live(cluster, "vmherd-system"):
                await asyncio.sleep(INTERVAL_S)
                with pytest.raises(GateClosed, match="pod-1 already leads with the lease vmherd in namespace vmherd-s"):
                    watch.gate()
                assert watch.ready() == "pod-1 already leads with the lease vmherd in namespace vmherd-system"
                assert told.metric[-1] is True
                await asyncio.sleep(3 * INTERVAL_S)
                assert watch.reason
            await asyncio.sleep(1.5 * INTERVAL_S)
            watch.gate()
    assert [notice.reason for notice in told.notices] == ["SecondWriter", "SecondWriterGone"]
    assert "wait for that lease with --leader-election-namespace vmherd-system" in told.notices[0].message
    assert [entry["level"] if "level" in entry else entry["log_level"] for entry in logs].count("error") == 1


async def test_the_loops_of_kubevirt_do_not_hide_another_vmherd():
    """The check of one writer fails. The result of the other check stays valid."""
    cluster = LeaseCluster(vmherd_system="pod-1")
    cluster.loops.by_path |= {DEPLOYMENT: [deployment("--rs-controller-threads=0")]}
    argv = ("--mode", "takeover", "--leader-election-namespace", "mine")
    async with watching(cluster, *argv, pod_namespace="") as (watch, told), live(cluster, "vmherd-system"):
        await asyncio.sleep(1.5 * INTERVAL_S)
        assert "KubeVirt reconciles" in watch.reason
        assert "pod-1 already leads" in watch.reason
        cluster.loops.by_path[DEPLOYMENT] = [TransportError("refused", sent=False)]
        await asyncio.sleep(3 * INTERVAL_S)
        assert "KubeVirt reconciles" in watch.reason
        cluster.loops.by_path[DEPLOYMENT] = [deployment(*RESTING)]
        await asyncio.sleep(INTERVAL_S)
        assert watch.reason == "pod-1 already leads with the lease vmherd in namespace vmherd-system"
    assert len(told.notices) == 1


async def test_a_process_that_no_longer_works_is_ready_again():
    cluster = Cluster()
    async with watching(cluster) as (watch, told):
        await asyncio.sleep(1.5 * INTERVAL_S)
        assert watch.reason
    assert watch.reason == ""
    assert told.metric[-1] is False


# Another vmherd is found by its writes: with another lease, or without one


pytestmark = pytest.mark.looptime

KEY = ObjectKey("shop", "web")
PATH = POOLS.path(*KEY)
OWN, OTHER = "vmherd/pod_1", "vmherd/laptop_2"


def written(**writes_s: float) -> dict:
    """The metadata of an object that these processes wrote, each this number of seconds after the start."""
    names = {"own": OWN, "other": OTHER, "user": "kubectl-edit", "old": "vmherd"}
    fields = [
        {"manager": names[name], "time": (NOW + timedelta(seconds=at)).isoformat()} for name, at in writes_s.items()
    ]
    return {"metadata": {"name": "web", "namespace": "shop", "managedFields": [*fields, {"manager": OTHER}]}}


LOOKS = {
    "a later write of another process": ([written(own=0, other=31)], True),
    "its writes come before ours": ([written(own=0, other=5), written(own=60, other=31)], True),
    "the last writes of the leader before": ([written(own=0, other=30)], False),
    "only this process and users": ([written(own=0, user=500, old=500)], False),
    "this process has not written yet": ([written(other=500)], False),
}


@pytest.mark.parametrize(("answers", "expected"), LOOKS.values(), ids=LOOKS)
async def test_another_process_is_found_by_a_write_that_is_later_than_the_first_of_this_process(answers, expected):
    sample = WriterSample(AnswersByPath({PATH: answers}), "pod_1", lambda: [(POOLS, KEY)])
    found = [await sample.find() for _ in tuple(answers)][-1]
    assert (found is not None) is expected
    if found is not None:
        assert found.evidence == f"another vmherd, laptop_2, has written {POOLS.name} shop/web"
        assert not found.stops


async def test_another_process_has_stopped_if_it_has_written_nothing_for_ten_minutes():
    answers = [written(own=0, other=100), written(own=0, other=100), written(own=0, other=700)]
    sample = WriterSample(AnswersByPath({PATH: answers}), "pod_1", lambda: [(POOLS, KEY)])
    assert await sample.find() is not None
    await asyncio.sleep(QUIET_S)
    assert await sample.find() is None
    assert await sample.find() is not None, "it works again"
