"""Events on a real API server, as a user sees them with kubectl (R12)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from controller.events.recorder import EventRecorder, ObjectRef
from controller.running import running
from controller.runtime.actions import Notice
from informers.http.client import load_credentials, open_client
from tests.cluster import Kubectl
from tests.controller.events.recorder_setup import COMPONENT, Drops

pytestmark = pytest.mark.cluster


class ClusterEvents:
    """A recorder that writes to the API server, and kubectl to read the Events."""

    def __init__(self, recorder: EventRecorder, kubectl: Kubectl, drops: Drops) -> None:
        self.recorder = recorder
        self.drops = drops
        self._kubectl = kubectl

    async def publish(self, ref: ObjectRef, *notices: Notice) -> None:
        self.recorder.publish(ref, notices)
        await self.recorder.flush(60)
        assert len(self.recorder) == 0

    async def kubectl(self, *arguments: str) -> str:
        return (await asyncio.to_thread(self._kubectl, *arguments)).stdout

    async def make_object(self) -> ObjectRef:
        """Create a ConfigMap as the object of the Events. Every cluster has this kind."""
        await self.kubectl("create", "configmap", "web")
        uid = await self.kubectl("get", "configmap", "web", "-o", "jsonpath={.metadata.uid}")
        return ref(self._kubectl.namespace, uid=uid)

    async def described(self) -> list[str]:
        """The Events that `kubectl describe` prints, one line each. Between two columns is one space."""
        text = await self.kubectl("describe", "configmap", "web")
        _, _, table = text.partition("Events:")
        return [" ".join(line.split()) for line in table.splitlines()[3:]]


def ref(namespace: str, *, uid: str = "of-no-object") -> ObjectRef:
    return ObjectRef(api_version="v1", kind="ConfigMap", namespace=namespace, name="web", uid=uid)


@pytest.fixture
async def events(kubectl: Kubectl) -> AsyncIterator[ClusterEvents]:
    drops = Drops()
    credentials = await load_credentials(str(kubectl.kubeconfig))
    async with open_client(credentials, user_agent="vmherd-tests") as client:
        recorder = EventRecorder(client, component=COMPONENT, now=lambda: datetime.now(UTC), count_drop=drops.count)
        async with running(recorder.run()):
            yield ClusterEvents(recorder, kubectl, drops)


async def test_a_message_of_the_greatest_length_is_accepted(events: ClusterEvents):
    web = await events.make_object()
    await events.publish(web, Notice(reason="FailedCreate", message="zu groß: " + "🙂" * 2000))
    [line] = await events.described()
    assert line.endswith("🙂...")
    assert events.drops == {}


async def test_an_event_about_a_cluster_scoped_object_is_in_the_default_namespace(events: ClusterEvents):
    node = ObjectRef(api_version="v1", kind="Node", namespace="", name="node-7", uid="of-node-7")
    await events.publish(node, Notice(reason="Odd", message="a node of no set"))
    selector = "involvedObject.name=node-7"
    seen = await events.kubectl("get", "events", "--namespace", "default", "--field-selector", selector)
    assert "a node of no set" in seen
