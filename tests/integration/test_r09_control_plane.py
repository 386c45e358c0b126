"""R9: after faults of the control plane's processes and data, each set has its VMIs, and no VMI was created twice."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.admin import Rejected, Unanswered
from sandbox.controlplane import APISERVER, ETCD, ControlPlane
from tests.cluster import new_namespace
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.faults import plane as faults

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

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


def freeze_the_api_server(plane: ControlPlane) -> None:
    with faults.frozen(plane, APISERVER):
        time.sleep(FROZEN_FOR_S)


def freeze_etcd(plane: ControlPlane) -> None:
    with faults.frozen(plane, ETCD):
        time.sleep(FROZEN_FOR_S)


def compact_and_restart(plane: ControlPlane) -> None:
    faults.compact(plane)
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
