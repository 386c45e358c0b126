"""The protocol of the replay server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from benchmarks.replay.client import requests_of, running_replay
from benchmarks.replay.http import Answer, Request
from benchmarks.replay.objects import Size, fill
from benchmarks.replay.server import Server
from benchmarks.replay.state import State
from benchmarks.replay.watching import Watch
from controller.kubevirt.resources import VMIS
from informers.http.client import open_client
from informers.http.configuration import load_credentials
from informers.informer import SharedInformer

SETS = "/apis/kubevirt.io/v1/namespaces/team-0/virtualmachineinstancereplicasets"
ALL_VMIS = "/apis/kubevirt.io/v1/virtualmachineinstances"
VMIS_OF_TEAM = "/apis/kubevirt.io/v1/namespaces/team-0/virtualmachineinstances"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


@pytest.fixture
def server() -> Server:
    server = Server(State())
    fill(server.state, Size(sets=2, vmis_of_set=3, pools=1, vms_of_pool=2))
    return server


def ask(server: Server, method: str, target: str, body: Any = None, content_type: str = MERGE) -> tuple[int, Any]:
    path, _, query = target.partition("?")
    params = dict(part.split("=") for part in query.split("&")) if query else {}
    sent = b"" if body is None else json.dumps(body).encode()
    answer = server.handle(Request(method, path, params, {"content-type": content_type}, sent, 0.0))
    assert isinstance(answer, Answer)
    return answer.code, json.loads(answer.body)


def test_a_list_in_pages_has_each_object_once_and_one_resource_version(server):
    _, first = ask(server, "GET", f"{ALL_VMIS}?limit=5")
    token = first["metadata"]["continue"]
    _, second = ask(server, "GET", f"{ALL_VMIS}?limit=5&continue={token}")
    names = [item["metadata"]["uid"] for page in (first, second) for item in page["items"]]
    assert len(set(names)) == 8 == len(names)
    assert first["metadata"]["remainingItemCount"] == 3
    assert "continue" not in second["metadata"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert first["kind"] == "VirtualMachineInstanceList"


def test_a_status_patch_changes_only_the_status_and_the_resource_version(server):
    _, before = ask(server, "GET", f"{SETS}/fleet-00000")
    code, after = ask(
        server, "PATCH", f"{SETS}/fleet-00000/status", {"spec": {"replicas": 9}, "status": {"replicas": 3}}
    )
    assert (code, after["status"], after["spec"]) == (200, {"replicas": 3}, before["spec"])
    assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    assert ask(server, "GET", f"{SETS}/fleet-00000") == (200, after)


def test_a_change_of_the_spec_raises_the_generation_and_an_equal_patch_changes_nothing(server):
    _, first = ask(server, "PATCH", f"{SETS}/fleet-00000", {"spec": {"replicas": 9}})
    _, second = ask(server, "PATCH", f"{SETS}/fleet-00000", {"spec": {"replicas": 9}})
    assert first["metadata"]["generation"] == 10
    assert second == first


def test_a_patch_with_another_resource_version_is_a_conflict(server):
    code, status = ask(server, "PATCH", f"{SETS}/fleet-00000", {"metadata": {"resourceVersion": "1"}})
    assert (code, status["reason"]) == (409, "Conflict")


def test_a_json_patch_tests_before_it_changes(server):
    path = f"{SETS}/fleet-00000"
    steps = [{"op": "test", "path": "/metadata/name", "value": "other"}, {"op": "remove", "path": "/spec/replicas"}]
    assert ask(server, "PATCH", path, steps, JSON_PATCH)[0] == 422
    steps[0]["value"] = "fleet-00000"
    code, after = ask(server, "PATCH", path, steps, JSON_PATCH)
    assert code == 200
    assert "replicas" not in after["spec"]


def test_a_created_object_gets_a_uid_and_exists_only_once(server):
    body = {"metadata": {"name": "new"}, "spec": {}}
    code, created = ask(server, "POST", VMIS_OF_TEAM, body)
    assert code == 201
    assert created["metadata"]["uid"]
    assert created["metadata"]["namespace"] == "team-0"
    assert ask(server, "POST", VMIS_OF_TEAM, body)[1]["reason"] == "AlreadyExists"


def test_a_delete_with_another_uid_is_a_conflict_and_with_the_same_uid_removes_the_object(server):
    path = f"{VMIS_OF_TEAM}/new"
    _, vmi = ask(server, "POST", VMIS_OF_TEAM, {"metadata": {"name": "new"}})
    assert ask(server, "DELETE", path, {"preconditions": {"uid": "other"}})[0] == 409
    assert ask(server, "DELETE", path, {"preconditions": {"uid": vmi["metadata"]["uid"]}})[0] == 200
    assert ask(server, "GET", path)[0] == 404


def test_a_deleted_object_with_a_finalizer_goes_when_the_finalizer_goes(server):
    path = f"{VMIS_OF_TEAM}/kept"
    ask(server, "POST", VMIS_OF_TEAM, {"metadata": {"name": "kept", "finalizers": ["a/b"]}})
    _, deleting = ask(server, "DELETE", path)
    assert deleting["metadata"]["deletionTimestamp"]
    ask(server, "PATCH", path, {"metadata": {"finalizers": None}})
    assert ask(server, "GET", path)[0] == 404


def test_discovery_lists_the_served_kinds_and_no_others(server):
    _, found = ask(server, "GET", "/apis/pool.kubevirt.io/v1beta1")
    assert [each["name"] for each in found["resources"]] == ["virtualmachinepools"]
    assert ask(server, "GET", "/apis/apps.example/v1")[0] == 404


def test_requests_are_counted_and_the_first_write_is_noted(server):
    server.seen.begin(0)
    ask(server, "GET", ALL_VMIS)
    ask(server, "POST", "/api/v1/namespaces/team-0/events", {})
    assert server.seen.report()["first_write"] == {}
    ask(server, "POST", VMIS_OF_TEAM, {"metadata": {"name": "new"}})
    report = server.seen.report()
    assert report["first_write"]["wall_s"] > 0
    assert requests_of(report) == 3


class Sink:
    """Takes the lines of a watch."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def send(self, data: bytes) -> None:
        self.events += [json.loads(line) for line in data.splitlines()]

    async def flows(self) -> None:
        return

    def end(self) -> None:
        self.events.append({"type": "END"})


def lose_one(server: Server) -> None:
    vmis = server.state.collections[("kubevirt.io", "virtualmachineinstances")]
    server.state.remove(vmis, next(iter(vmis.items)))


async def watched(server: Server, params: dict[str, str], *, namespace: str = "") -> tuple[Sink, asyncio.Task[None]]:
    sink = Sink()
    vmis = server.state.collections[("kubevirt.io", "virtualmachineinstances")]
    watch = Watch(server.state, vmis, namespace, Request("GET", "", params, {}, b"", 0.0))
    task = asyncio.get_running_loop().create_task(watch(sink))  # type: ignore[arg-type]
    for _ in range(20):
        await asyncio.sleep(0)
    return sink, task


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_a_streaming_list_ends_with_a_bookmark_and_then_sends_changes(server):
    sink, task = await watched(server, {"sendInitialEvents": "true"})
    *added, bookmark = sink.events
    assert [event["type"] for event in added] == ["ADDED"] * 8
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    lose_one(server)
    for _ in range(3):
        await asyncio.sleep(0)
    assert sink.events[-1]["type"] == "DELETED"
    await cancelled(task)


async def test_a_watch_of_a_namespace_sends_only_its_objects(server):
    sink, task = await watched(server, {"sendInitialEvents": "true"}, namespace="team-1")
    assert {event["object"]["metadata"]["namespace"] for event in sink.events[:-1]} == {"team-1"}
    await cancelled(task)


async def test_a_watch_from_a_resource_version_sends_what_changed_since(server):
    version = str(server.state.version)
    lose_one(server)
    sink, task = await watched(server, {"resourceVersion": version})
    assert [event["type"] for event in sink.events] == ["DELETED"]
    await cancelled(task)


async def test_a_watch_from_a_forgotten_resource_version_ends_with_expired(server, monkeypatch):
    monkeypatch.setattr("benchmarks.replay.collection.HISTORY", 1)
    vmis = server.state.collections[("kubevirt.io", "virtualmachineinstances")]
    key = next(iter(vmis.items))
    for _ in range(3):
        server.state.touch(vmis, key)
    sink, task = await watched(server, {"resourceVersion": "1"})
    await task
    assert [event["type"] for event in sink.events] == ["ERROR", "END"]
    assert sink.events[0]["object"]["reason"] == "Expired"


@pytest.fixture
async def informer(tmp_path) -> AsyncIterator[tuple[SharedInformer[Any], Any]]:
    with running_replay(tmp_path, Size(sets=2, vmis_of_set=250, pools=1, vms_of_pool=2)) as replay:
        credentials = await load_credentials(replay.kubeconfig, "")
        async with open_client(credentials, user_agent="test") as client:
            informer = SharedInformer(VMIS, client)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(informer.run())
                async with asyncio.timeout(60):
                    await informer.synced.wait()
                yield informer, replay
                running.cancel()


async def test_an_informer_lists_and_follows_the_replay_server(informer):
    informer, replay = informer
    assert len(informer.store) == 502
    await asyncio.to_thread(replay.ask, "lose-one")
    async with asyncio.timeout(30):
        while len(informer.store) != 501:
            await asyncio.sleep(0.01)
    await asyncio.to_thread(replay.ask, "churn", rate=100, seconds=0.2)
    load = await asyncio.to_thread(replay.until_idle, within_s=30)
    assert 0 < load["changes"] <= 21
