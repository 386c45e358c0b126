"""After a restore of etcd from a snapshot, the controller works on the restored state."""

import base64
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.admin import Admin
from sandbox.controlplane import APISERVER, ControlPlane
from tests.cluster import new_namespace
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually
from tests.faults.plane import ask_etcd, restore, revision, snapshot
from tests.faults.proxy.actions import Refuse
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import fault_proxy_in_thread
from tests.integration.idle_plane import LEASE

pytestmark = pytest.mark.cluster

DOWN_S = 3.0
AHEAD = 500


@pytest.fixture
def restored_plane(broken_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane. Each test leaves no lease, because a killed controller would hold its lease for a minute."""
    yield broken_plane
    Admin(broken_plane.kubeconfig).send("DELETE", LEASE)


@pytest.mark.timeout(300)
def test_after_a_restore_of_etcd_a_set_has_the_number_of_its_restored_spec(
    restored_plane: ControlPlane, tmp_path: Path
) -> None:
    with controller_process(restored_plane, tmp_path) as program, new_namespace(restored_plane) as namespace:
        sets = SetNamespace(restored_plane, namespace, program)
        sets.make(3)
        kept = sorted(sets.wait_for(3))
        saved = snapshot(restored_plane, tmp_path / "snapshot")
        sets.vmis.change(kept[0], {"metadata": {"labels": {"app": "other"}}})
        sets.change({"spec": {"replicas": 6}})
        # A young VMI is released late, so this status may come before or after the release.
        eventually(lambda: sets.status().get("replicas") == 6, what="six VMIs")
        # A real restore takes longer than the delay before the next watch.
        restored_plane.stop_apiserver()
        time.sleep(DOWN_S)
        restored_plane.start_component(APISERVER)  # `restore` stops the server before the server answers
        since = restored_plane.audit_position()
        restore(restored_plane, saved)
        # These writes may have the same versions as writes that the restore has undone.
        for name in kept[1:]:
            sets.play(name)
        eventually(lambda: sets.status().get("readyReplicas") == 2, what="the status counts the restored VMIs")
        eventually(lambda: sorted(sets.alive()) == kept, what="the VMIs of the restored spec")
        sets.settle()
        assert sorted(sets.alive()) == kept
        # The caches of sets and VMIs see the restore one after the other. In between, the set may create VMIs for its
        # lost spec, and it deletes them again. It deletes none of the restored VMIs.
        assert {record.name for record in sets.requests("delete", since=since)} & set(kept) == set()
        sets.change({"spec": {"replicas": 4}})
        sets.wait_for(4)
        assert program.working


@pytest.mark.timeout(300)
def test_after_a_restore_that_no_watch_notices_a_set_has_the_number_of_its_restored_spec(
    restored_plane: ControlPlane, tmp_path: Path
) -> None:
    """The version of the restored server increases beyond the versions in the caches. Only then, the watches connect
    again. So the server accepts the versions of the watches, and no watch fails.
    """
    with (
        fault_proxy_in_thread(restored_plane.url, restored_plane.ca) as proxy,
        controller_process(restored_plane, tmp_path, through=proxy.write_kubeconfig) as program,
        new_namespace(restored_plane) as namespace,
    ):
        sets = SetNamespace(restored_plane, namespace)
        sets.make(3)
        kept = sorted(sets.wait_for(3))
        saved = snapshot(restored_plane, tmp_path / "snapshot")
        write_to_etcd(restored_plane, AHEAD)
        sets.change({"spec": {"replicas": 6}})
        sets.wait_for(6)
        eventually(lambda: lease_version(restored_plane) > saved.revision, what="the lease is renewed")
        newest = revision(restored_plane)
        refused = proxy.add(Rule(Match("watch"), Refuse(503, retry_after="1"), times=None))
        restore(restored_plane, saved, bump_revision=False)
        # The API server starts to cache a resource with the first request for it. A watch that begins before this cache
        # would expire.
        eventually(lambda: len(sets.vmis()) == 3 and sets.read()["spec"]["replicas"] == 3, what="the restored state")
        assert revision(restored_plane) < newest - AHEAD / 2
        write_to_etcd(restored_plane, newest - revision(restored_plane) + AHEAD)
        proxy.remove(refused)
        eventually(lambda: program.lines(level="error"), what="the controller notices the restore")
        sets.change({"spec": {"replicas": 4}})
        alive = sorted(sets.wait_for(4, within_s=60))
        assert set(kept) < set(alive)
        assert program.working


def lease_version(plane: ControlPlane) -> int:
    return int(Admin(plane.kubeconfig).get(LEASE)["metadata"]["resourceVersion"])


def write_to_etcd(plane: ControlPlane, times: int) -> None:
    """Increase the revision of etcd."""
    for _ in range(times):
        ask_etcd(plane, "kv/put", key=base64.b64encode(b"written").decode())
