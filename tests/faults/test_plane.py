"""Faults of a real control plane's processes and data: each fault has the effect that the scenarios rely on."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.audit import read_records
from sandbox.binaries import Binaries
from sandbox.controlplane import APISERVER, ETCD, ControlPlane
from tests.cluster import running_plane
from tests.faults import plane as faults

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
    """Wait until `look` returns a true value without an error of the API server."""
    give_up = time.monotonic() + within_s
    while True:
        with suppress(Rejected, Unanswered):
            if seen := look():
                return seen
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_the_audit_log_of_a_fault_plane_contains_the_body_of_a_write(plane: ControlPlane, admin: Admin) -> None:
    since = plane.audit_position()
    create(admin, "written")
    [written] = [r for r in read_records(plane.audit_log, since) if (r.verb, r.resource) == ("create", "configmaps")]
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
    with refused.value as answer:
        assert "has been compacted" in answer.read().decode()
    assert soon(lambda: "compacted-2" in names(admin))


def test_objects_survive_a_restart_of_etcd_and_a_killed_api_server(plane: ControlPlane, admin: Admin) -> None:
    create(admin, "surviving")
    faults.restart_etcd(plane)
    faults.kill_apiserver(plane)
    assert "surviving" in soon(lambda: names(admin))


# A restore starts a controller manager, which ends if the API server restarts meanwhile. So this test is the last one.
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
