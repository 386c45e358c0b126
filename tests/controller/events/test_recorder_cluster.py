"""Events on a real API server, seen as a user sees them: with kubectl (R12)."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from controller.events.recorder import EventRecorder, ObjectRef
from controller.running import running
from controller.runtime.plan import Notice
from informers.client import load_credentials, open_client
from tests.cluster import Kubectl
from tests.controller.events.recorder_setup import COMPONENT, Drops, created

pytestmark = pytest.mark.cluster


class Requests(Counter[str]):
    """Requests by method and status."""

    def request_finished(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        self[f"{verb} {code}"] += 1


class RecorderOnACluster:
    def __init__(self, recorder: EventRecorder, kubectl: Kubectl, requests: Requests, drops: Drops) -> None:
        self.recorder = recorder
        self.requests = requests
        self.drops = drops
        self._kubectl = kubectl

    async def publish(self, ref: ObjectRef, *notices: Notice) -> None:
        """Publish, and wait until that is sent."""
        self.recorder.publish(ref, notices)
        await self.recorder.flush(20)
        assert len(self.recorder) == 0

    async def kubectl(self, *arguments: str) -> str:
        return (await asyncio.to_thread(self._kubectl, *arguments)).stdout

    async def make_object(self) -> ObjectRef:
        """Something that Events can be about, and that every cluster knows."""
        await self.kubectl("create", "configmap", "web")
        uid = await self.kubectl("get", "configmap", "web", "-o", "jsonpath={.metadata.uid}")
        return ref(self._kubectl.namespace, uid=uid)

    async def described(self) -> list[str]:
        """The Events at the end of `kubectl describe`: type, reason, age and count, source, message; one space each."""
        text = await self.kubectl("describe", "configmap", "web")
        _, _, events = text.partition("Events:")
        return [" ".join(line.split()) for line in events.splitlines()[3:]]


def ref(namespace: str, *, uid: str = "of-no-object") -> ObjectRef:
    return ObjectRef(api_version="v1", kind="ConfigMap", namespace=namespace, name="web", uid=uid)


@pytest.fixture
async def setup(kubectl: Kubectl) -> AsyncIterator[RecorderOnACluster]:
    requests, drops = Requests(), Drops()
    credentials = await load_credentials(str(kubectl.kubeconfig))
    async with open_client(credentials, user_agent="vmherd-tests", instruments=requests) as client:
        recorder = EventRecorder(client, component=COMPONENT, now=lambda: datetime.now(UTC), instruments=drops)
        async with running(recorder.run()):
            yield RecorderOnACluster(recorder, kubectl, requests, drops)


def age_and_count(line: str) -> str:
    """`0s (x3 over 1s)` and `4s (x3 over 4s)` are the same but for the time that the test takes."""
    return re.sub(r"\b\d+s\b", "Ns", line)


async def test_kubectl_describe_shows_what_happened_and_who_says_so(setup: RecorderOnACluster):
    web = await setup.make_object()
    await setup.publish(web, created("web1"), Notice(reason="FailedCreate", message="exceeded quota: small"))
    assert [age_and_count(line) for line in await setup.described()] == [
        f"Normal SuccessfulCreate Ns {COMPONENT} Created virtual machine: web1",
        f"Warning FailedCreate Ns {COMPONENT} exceeded quota: small",
    ]


async def test_kubectl_describe_shows_how_often_it_happened(setup: RecorderOnACluster):
    web = await setup.make_object()
    for _ in range(3):
        await setup.publish(web, Notice(reason="FailedCreate", message="exceeded quota: small"))
    assert [age_and_count(line) for line in await setup.described()] == [
        f"Warning FailedCreate Ns (x3 over Ns) {COMPONENT} exceeded quota: small"
    ]
    assert setup.requests == {"POST 201": 1, "PATCH 200": 2}


async def test_a_thousand_creates_are_a_dozen_events_and_requests(setup: RecorderOnACluster):
    web = await setup.make_object()
    await setup.publish(web, *[created(f"web{n}") for n in range(1000)])
    lines = [age_and_count(line) for line in await setup.described()]
    assert len(lines) == 11
    assert f"Normal SuccessfulCreate Ns {COMPONENT} Created virtual machine: web0" in lines
    assert lines[-1] == (
        f"Normal SuccessfulCreate Ns (x990 over Ns) {COMPONENT}"
        " (combined from similar events): Created virtual machine: web999"
    )
    assert setup.requests == {"POST 201": 11}


async def test_a_message_as_long_as_may_be_is_taken(setup: RecorderOnACluster):
    web = await setup.make_object()
    await setup.publish(web, Notice(reason="FailedCreate", message="zu groß: " + "🙂" * 2000))
    [line] = await setup.described()
    assert line.endswith("🙂...")
    assert setup.drops == {}


async def test_an_event_that_is_gone_is_made_anew(setup: RecorderOnACluster):
    web = await setup.make_object()
    await setup.publish(web, created("web1"))
    await setup.kubectl("delete", "events", "--all")
    await setup.publish(web, created("web1"))
    assert len(await setup.described()) == 1
    assert setup.requests == {"POST 201": 2, "PATCH 404": 1}


async def test_an_event_about_an_object_of_the_cluster_is_where_kubectl_looks_for_it(setup: RecorderOnACluster):
    node = ObjectRef(api_version="v1", kind="Node", namespace="", name="node-7", uid="of-node-7")
    await setup.publish(node, Notice(reason="Odd", message="a node of no set"))
    selector = "involvedObject.name=node-7"
    seen = await setup.kubectl("get", "events", "--namespace", "default", "--field-selector", selector)
    assert "a node of no set" in seen


async def test_what_happens_in_a_namespace_that_goes_away_is_dropped_without_retries(
    setup: RecorderOnACluster, namespace: str
):
    dying = f"{namespace}-dying"
    await setup.kubectl("create", "namespace", dying)
    await setup.kubectl("delete", "namespace", dying, "--wait=false")
    await setup.publish(ref(dying), created("web1"))
    await setup.publish(ref("there-is-no-such-namespace"), created("web1"))
    assert setup.drops == {"namespace_gone": 2}
    assert sum(setup.requests.values()) == 2
