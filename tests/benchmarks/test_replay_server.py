"""The protocol of the replay server, as its client sees it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import TCPConnector, web
from aiohttp.test_utils import TestClient, TestServer

from benchmarks.cases.fleets import requests_of, running_replay
from benchmarks.fleet import Size
from benchmarks.replay.server import Server
from benchmarks.replay.store import Store
from controller.kubevirt.resources import VMIS
from informers.http.client import open_client
from informers.http.configuration import load_credentials
from informers.informer import SharedInformer

ALL_VMIS = "/apis/kubevirt.io/v1/virtualmachineinstances"
VMIS_OF_TEAM = "/apis/kubevirt.io/v1/namespaces/team-0/virtualmachineinstances"
MERGE = "application/merge-patch+json"


class Client:
    """A client of a replay server in this process."""

    def __init__(self, server: Server, http: TestClient[Any, Any]) -> None:
        self.server = server
        self._http = http

    async def ask(self, method: str, target: str, body: Any = None, content_type: str = MERGE) -> tuple[int, Any]:
        sent = None if body is None else json.dumps(body)
        async with self._http.request(method, target, data=sent, headers={"Content-Type": content_type}) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    server, app = Server(Store(Size(sets=2, vmis_of_set=3, pools=1, vms_of_pool=2))), web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    connector = TCPConnector(force_close=True)  # so that no handler waits for a next request after the test
    async with TestClient(TestServer(app, handler_cancellation=True), connector=connector) as http:
        yield Client(server, http)


async def test_requests_are_counted_and_the_first_write_is_noted(client: Client):
    seen = client.server.seen
    seen.begin(0)
    await client.ask("GET", ALL_VMIS)
    await client.ask("POST", "/api/v1/namespaces/team-0/events", {})
    assert seen.report()["first_write"] == {}
    await client.ask("POST", VMIS_OF_TEAM, {"metadata": {"name": "new"}})
    report = seen.report()
    assert report["first_write"]["wall_s"] > 0
    assert requests_of(report) == 3


async def test_an_informer_lists_and_follows_the_replay_server(tmp_path):
    with running_replay(tmp_path, Size(sets=2, vmis_of_set=250, pools=1, vms_of_pool=2)) as replay:
        credentials = await load_credentials(str(replay.kubeconfig), "")
        async with open_client(credentials, user_agent="test") as http:
            informer = SharedInformer(VMIS, http)
            async with asyncio.TaskGroup() as group, asyncio.timeout(60):
                running = group.create_task(informer.run())
                await informer.synced.wait()
                assert len(informer.store) == 502
                await asyncio.to_thread(replay.ask, "lose-one")
                while len(informer.store) != 501:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(replay.ask, "churn", rate=100, seconds=0.2)
                load = await asyncio.to_thread(replay.until_idle, within_s=30)
                assert 0 < load["changes"] <= 21
                running.cancel()
