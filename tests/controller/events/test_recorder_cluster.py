"""Events on a real API server, as a user sees them with kubectl (R12)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeAlias

import pytest

from controller.events.recorder import EventRecorder, ObjectRef
from controller.running import running
from controller.runtime.actions import Notice
from informers.http.client import load_credentials, open_client
from tests.cluster import Kubectl
from tests.controller.events.recorder_setup import COMPONENT, Drops

pytestmark = pytest.mark.cluster


Publish: TypeAlias = Callable[[ObjectRef, Notice], Awaitable[None]]


@pytest.fixture
async def publish(kubectl: Kubectl) -> AsyncIterator[Publish]:
    """Publishes a notice, and waits until the API server has the Event."""
    drops = Drops()
    credentials = await load_credentials(str(kubectl.kubeconfig))
    async with open_client(credentials, user_agent="vmherd-tests") as client:
        recorder = EventRecorder(client, component=COMPONENT, now=lambda: datetime.now(UTC), count_drop=drops.count)

        async def publish(ref: ObjectRef, notice: Notice) -> None:
            recorder.publish(ref, (notice,))
            await recorder.flush(60)
            assert len(recorder) == 0
            assert drops == {}

        async with running(recorder.run()):
            yield publish


async def said(kubectl: Kubectl, *arguments: str) -> str:
    return (await asyncio.to_thread(kubectl, *arguments)).stdout


async def test_a_message_of_the_greatest_length_is_accepted(publish: Publish, kubectl: Kubectl):
    await said(kubectl, "create", "configmap", "web")  # every cluster has this kind
    uid = await said(kubectl, "get", "configmap", "web", "-o", "jsonpath={.metadata.uid}")
    web = ObjectRef(api_version="v1", kind="ConfigMap", namespace=kubectl.namespace, name="web", uid=uid)
    await publish(web, Notice(reason="FailedCreate", message="zu groß: " + "🙂" * 2000))
    _, _, table = (await said(kubectl, "describe", "configmap", "web")).partition("Events:")
    [line] = table.splitlines()[3:]
    assert line.rstrip().endswith("🙂...")


async def test_an_event_about_a_cluster_scoped_object_is_in_the_default_namespace(publish: Publish, kubectl: Kubectl):
    node = ObjectRef(api_version="v1", kind="Node", name="node-7", uid="of-node-7")
    await publish(node, Notice(reason="Odd", message="a node of no set"))
    selector = "involvedObject.name=node-7"
    seen = await said(kubectl, "get", "events", "--namespace", "default", "--field-selector", selector)
    assert "a node of no set" in seen
