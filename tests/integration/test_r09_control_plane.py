"""R9: faults of the control plane's processes and data, and a restore of etcd. After a restore, the controller works on
the restored state. After other faults, each set has its VMIs, and no VMI was created twice.
"""

import base64
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.controlplane import APISERVER, ETCD, ControlPlane
from tests.cluster import new_namespace
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.faults import plane as faults
from tests.faults.plane import ask_etcd, restore, revision, snapshot
from tests.faults.proxy.actions import Refuse
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import fault_proxy_in_thread
from tests.release import LEASE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

DOWN_S = 3.0
AHEAD = 500


FROZEN_FOR_S = 5.0
"""The time for which a process does not answer."""


@pytest.fixture
def controller(broken_plane: ControlPlane, tmp_path: Path) -> Iterator[ControllerProcess]:
    """A controller without leader election. With leader election, the process ends when it loses its lease."""
    with controller_process(broken_plane, tmp_path, "--no-leader-elect") as program:
        yield program


@pytest.fixture
def sets(broken_plane: ControlPlane, controller: ControllerProcess) -> Iterator[SetNamespace]:
    assert controller.working
    with new_namespace(broken_plane) as name:
        yield SetNamespace(broken_plane, name)


def freeze(plane: ControlPlane, component: str) -> None:
    with faults.frozen(plane, component), pytest.raises(Unanswered):
        Admin(plane.kubeconfig).send("GET", "/api/v1/namespaces/none?resourceVersion=", timeout_s=FROZEN_FOR_S)


def freeze_the_api_server(plane: ControlPlane) -> None:
    freeze(plane, APISERVER)


def freeze_etcd(plane: ControlPlane) -> None:
    freeze(plane, ETCD)


def compact_and_restart(plane: ControlPlane) -> None:
    now = faults.compact(plane)
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        ask_etcd(plane, "kv/range", key="Lw==", revision=str(now - 1))
    refused.value.close()
    faults.defragment(plane)
    plane.restart_apiserver()


@pytest.mark.parametrize(
    "fault", [freeze_the_api_server, freeze_etcd, faults.restart_etcd, faults.kill_apiserver, compact_and_restart]
)
def test_r9_after_a_fault_of_a_process_the_controller_scales_as_before(
    sets: SetNamespace, controller: ControllerProcess, fault: Callable[[ControlPlane], None]
) -> None:
    sets.make(3)
    sets.wait_for(3)
    fault(sets.plane)
    eventually(lambda: _changed(sets, 5), what="the API server accepts the change")
    alive = sets.wait_for(5, within_s=60)
    assert sets.created() == dict.fromkeys(alive, 1)
    assert controller.working


def _changed(sets: SetNamespace, replicas: int) -> bool:
    try:
        sets.change({"spec": {"replicas": replicas}})
    except (Rejected, Unanswered):
        return False
    return True


@pytest.fixture
def restored_plane(broken_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane. Each test leaves no lease, because a killed controller would hold its lease for a minute."""
    yield broken_plane
    Admin(broken_plane.kubeconfig).send("DELETE", LEASE)


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
        restored_plane.stop_component(APISERVER)
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
