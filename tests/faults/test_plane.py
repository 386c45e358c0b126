"""Faults of a real control plane's processes and data: each fault has the effect that the scenarios rely on."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.binaries import Binaries
from sandbox.controlplane import APISERVER, ETCD, ControlPlane
from tests.cluster import running_plane
from tests.faults import plane as faults
from tests.faults.actions import RouteTo
from tests.faults.proxy import fault_proxy
from tests.faults.rules import Match, Rule
from tests.faults.upstream import open_upstream

pytestmark = pytest.mark.cluster

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane that the tests of this file may break. Each test repairs it."""
    with running_plane(control_plane_binaries, audit_level="Request") as running:
        yield running


@pytest.fixture
def admin(plane: ControlPlane) -> Admin:
    return Admin(plane.kubeconfig)


def create(admin: Admin, name: str) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    return json.loads(admin.send("POST", MAPS, json.dumps(body).encode(), "application/json"))


def version_of(item: dict[str, Any]) -> int:
    return int(item["metadata"]["resourceVersion"])


def names(admin: Admin, query: str = "") -> set[str]:
    return {item["metadata"]["name"] for item in admin.get(MAPS + query)["items"]}


def soon(look: Callable[[], Any], within_s: float = 60.0) -> Any:
    return asyncio.run(asoon(look, within_s))


async def asoon(look: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Wait until `look` returns a true value without an error of the API server."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                if seen := await asyncio.to_thread(look):
                    return seen
            except (Rejected, Unanswered):
                pass
            await asyncio.sleep(0.05)


def test_the_audit_log_of_a_fault_plane_contains_the_body_of_a_write(plane: ControlPlane, admin: Admin) -> None:
    since = plane.audit_position()
    create(admin, "written")
    [written] = [r for r in plane.audit_records(since) if (r.verb, r.resource) == ("create", "configmaps")]
    assert json.loads(bytes(written.request_object))["metadata"]["name"] == "written"


@pytest.mark.parametrize("component", [APISERVER, ETCD])
def test_a_frozen_component_does_not_answer_and_goes_on_after_the_thaw(
    plane: ControlPlane, admin: Admin, component: str
) -> None:
    name = f"stored-before-the-freeze-of-{component}"
    create(admin, name)
    with faults.frozen(plane, component), pytest.raises(Unanswered):
        admin.send("GET", f"{MAPS}/none?resourceVersion=", timeout_s=1)
    assert soon(lambda: name in names(admin))


def test_after_a_compaction_etcd_knows_no_older_revision(plane: ControlPlane, admin: Admin) -> None:
    old = version_of(create(admin, "compacted-1"))
    create(admin, "compacted-2")
    assert faults.compact(plane) > old
    faults.defragment(plane)
    with pytest.raises(urllib.error.HTTPError) as refused:
        faults.ask_etcd(plane, "kv/range", key="Lw==", revision=str(old))
    assert "has been compacted" in refused.value.read().decode()
    assert soon(lambda: "compacted-2" in names(admin))


def test_objects_survive_a_restart_of_etcd_and_a_killed_api_server(plane: ControlPlane, admin: Admin) -> None:
    create(admin, "surviving")
    faults.restart_etcd(plane)
    faults.kill_apiserver(plane)
    assert "surviving" in soon(lambda: names(admin))


def test_a_restore_brings_back_the_objects_and_the_revision_of_the_snapshot(
    plane: ControlPlane, admin: Admin, tmp_path: Path
) -> None:
    create(admin, "before")
    saved = faults.snapshot(plane, tmp_path / "snapshot")
    lost = create(admin, "lost")
    admin.send("DELETE", f"{MAPS}/before")
    faults.restore(plane, saved)
    found = soon(lambda: names(admin))
    assert ("before" in found, "lost" in found) == (True, False)
    assert version_of(create(admin, "lost")) > version_of(lost) > saved.revision


def test_a_revoked_token_is_refused_with_401(plane: ControlPlane) -> None:
    made = faults.revocable_token(plane, "default", "default")
    request = urllib.request.Request(plane.url + "/version", headers={"Authorization": f"Bearer {made.token}"})
    trust = ssl.create_default_context(cafile=str(plane.ca))

    def status() -> int:
        try:
            with urllib.request.urlopen(request, context=trust, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code

    assert status() == 200
    made.revoke(plane)
    assert soon(lambda: status() == 401)


@asynccontextmanager
async def watching(url: str, plane: ControlPlane, query: str) -> AsyncIterator[Callable[[], list[str]]]:
    """The names of the created objects, as a watch through a proxy shows them. The proxy routes watches to `url`."""
    token = faults.revocable_token(plane, "default", "default").token
    seen: list[str] = []
    async with open_upstream(plane.url, plane.ca) as upstream, fault_proxy(upstream, tls=False) as proxy:
        proxy.add(Rule(Match(watch=True), RouteTo(url), times=None))
        headers = {"Authorization": f"Bearer {token}"}

        async def read() -> None:
            async with upstream.session.get(f"{proxy.url}{MAPS}?watch=1{query}", headers=headers) as answer:
                assert answer.status == 200
                async for line in answer.content:
                    seen.append(json.loads(line)["object"]["metadata"]["name"])

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            yield lambda: seen
            reading.cancel()


async def test_the_watch_of_a_stale_api_server_lags_until_the_thaw(plane: ControlPlane, admin: Admin) -> None:
    _allow_the_default_account(admin)
    async with faults.stale_apiserver(plane) as stale:
        first = await asyncio.to_thread(create, admin, "stale-1")
        async with watching(stale.url, plane, f"&resourceVersion={version_of(first) - 1}") as seen:
            await asoon(lambda: "stale-1" in seen())
            stale.etcd.freeze()
            await asyncio.to_thread(create, admin, "stale-2")
            await asyncio.sleep(1)
            assert "stale-2" not in seen()
            stale.etcd.thaw()
            await asoon(lambda: "stale-2" in seen())


def _allow_the_default_account(admin: Admin) -> None:
    rbac = "rbac.authorization.k8s.io"
    body = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "default-views"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }
    path = f"/apis/{rbac}/v1/clusterrolebindings"
    admin.send("POST", path, json.dumps(body).encode(), "application/json")
