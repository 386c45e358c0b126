"""The informer on a real API server: its cache has the same objects as the server. This is also true after a restart of
the server.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from informers.errors import ApiError
from informers.http.client import ApiClient, load_credentials, open_client
from informers.informer import SharedInformer
from informers.resource import Resource
from informers.watch.watch_state import Listing
from sandbox.audit import read_records
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.documents import open_definition
from tests.informers.scripted import following
from tests.informers.subjects import COLOR, CONFIGMAPS, ConfigMap, by_color, key

pytestmark = pytest.mark.cluster

MANY = 1100
"""A list needs three pages."""
WITHIN_S = 60
WIDGETS = Resource(ConfigMap, group="tests.vmherd.dev", version="v1", plural="widgets", kind="Widget")
WIDGET_CRD = open_definition("Widget", "widgets.tests.vmherd.dev", "v1")


@asynccontextmanager
async def client_with(kubeconfig: Path, *, user_agent: str = "informer-tests") -> AsyncIterator[ApiClient]:
    credentials = await load_credentials(str(kubeconfig))
    async with open_client(credentials, user_agent=user_agent, max_inflight=20) as client:
        yield client


def body(name: str, *, color: str = "", labels: dict[str, str] | None = None) -> bytes:
    meta = {"name": name, "labels": labels or {}}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {COLOR: color}}).encode()


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.02)


def shown(informer: SharedInformer[ConfigMap]) -> set[str]:
    # The controller manager creates this ConfigMap in every namespace.
    return {obj.metadata.name for obj in informer.store.values()} - {"kube-root-ca.crt"}


@pytest.mark.newest
async def test_a_thousand_objects_are_listed_and_watched_with_a_streaming_list_and_with_pages(
    control_plane: ControlPlane, namespace: str
):
    async with client_with(control_plane.kubeconfig) as client, asyncio.TaskGroup() as group:
        names = iter([f"many-{n}" for n in range(MANY)])

        async def create() -> None:
            for name in names:
                await client.create(CONFIGMAPS, namespace, body(name, color="red"))

        for _ in range(20):
            group.create_task(create())
    for streaming in (True, False):
        await are_listed_and_watched(control_plane, namespace, streaming=streaming)


async def are_listed_and_watched(control_plane: ControlPlane, namespace: str, *, streaming: bool) -> None:
    agent = f"informer-tests-{namespace}-{streaming}"
    position = control_plane.audit_position()
    async with client_with(control_plane.kubeconfig, user_agent=agent) as client:
        informer = SharedInformer(CONFIGMAPS, client, namespaces=(namespace,), indexes={COLOR: by_color})
        if not streaming:  # the state after a failed attempt on a server without streaming lists
            informer._reflectors[0]._relist = Listing()
        changes: list[Any] = []
        informer.add_handler(changes.append)
        async with following(informer):
            await eventually(informer.synced.is_set)
            assert len(informer.store.by_index(COLOR, "red")) == MANY
            await paint(client, namespace, "blue")
            await client.delete(CONFIGMAPS, key("many-8", namespace))
            await client.create(CONFIGMAPS, namespace, body("one-more", color="green"))
            await eventually(lambda: informer.store.by_index(COLOR, "green"))
            assert [obj.metadata.name for obj in informer.store.by_index(COLOR, "blue")] == ["many-7"]
            assert informer.store.get(key("many-8", namespace)) is None
            assert len(informer.store.by_index(COLOR, "red")) == MANY - 2
        await paint(client, namespace, "red")
        await client.create(CONFIGMAPS, namespace, body("many-8", color="red"))
        await client.delete(CONFIGMAPS, key("one-more", namespace))

    def lists() -> int:
        records = read_records(control_plane.audit_log, position)
        return sum(1 for r in records if r.user_agent == agent and r.verb == "list" and r.resource == "configmaps")

    await eventually(lambda: lists() == (0 if streaming else 3))


async def paint(client: ApiClient, namespace: str, color: str) -> None:
    """Change the color of the object `many-7`."""
    patch = json.dumps({"data": {COLOR: color}}).encode()
    await client.patch(CONFIGMAPS, key("many-7", namespace), patch, content_type="application/merge-patch+json")


async def test_a_definition_can_be_created_later_deleted_and_created_again(
    control_plane: ControlPlane, namespace: str, kubectl: Kubectl
):
    widget = {"apiVersion": "tests.vmherd.dev/v1", "kind": "Widget", "metadata": {"name": "w"}, "data": {}}
    async with client_with(control_plane.kubeconfig) as client:
        informer = SharedInformer(WIDGETS, client)
        async with following(informer):
            await eventually(lambda: informer.missing)
            for _ in range(2):
                await asyncio.to_thread(kubectl.apply, WIDGET_CRD)
                await eventually(lambda: informer.synced.is_set() and not informer.missing)
                async with asyncio.timeout(WITHIN_S):
                    while await _is_rejected(client.create(WIDGETS, namespace, json.dumps(widget).encode())):
                        await asyncio.sleep(0.1)
                await eventually(lambda: shown(informer) == {"w"})
                await asyncio.to_thread(kubectl, "delete", "crd", "widgets.tests.vmherd.dev")
                await eventually(lambda: shown(informer) == set())
                await eventually(lambda: informer.missing)


async def _is_rejected(request: Any) -> bool:
    try:
        await request
    except ApiError:
        return True
    return False
