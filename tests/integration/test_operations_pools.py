"""Pools survive crashes and outages of the controller and the API server, and work with kubectl and autoscalers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.controlplane import ControlPlane
from tests.controlplane.documents import READY_AFTER, owner_uid, uids, vm_template
from tests.controlplane.namespace import PoolNamespace, controller_for, new_pool_namespace
from tests.controlplane.programs import controller_process, simulator
from tests.controlplane.waits import eventually
from tests.controlplane.watch import watched
from tests.integration.renewal import memories

pytestmark = pytest.mark.cluster

AT_ONCE = ("--no-leader-elect",)
SLOWLY = (*AT_ONCE, "--kube-api-qps", "10", "--kube-api-burst", "5", "--burst", "5")
"""Flags for a slow controller. The test kills the controller before it has finished its work."""
OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
KILLS = 4


@pytest.fixture(scope="module")
def spare_plane(idle_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with a simulator, without a shared controller."""
    with simulator(idle_plane):
        yield idle_plane


@pytest.fixture
def spare(spare_plane: ControlPlane) -> Iterator[PoolNamespace]:
    with new_pool_namespace(spare_plane) as pools:
        yield pools
        pools.release()


def test_a_controller_killed_in_the_middle_of_a_scale_in_loses_no_disk_and_no_vm(
    spare: PoolNamespace, tmp_path: Path
) -> None:
    wanted, before = 5, 30
    with controller_process(spare.plane, tmp_path, *AT_ONCE):
        spare.make(before, template=vm_template(disks=("root",), runStrategy="Halted"), scaleInStrategy=OFFLINE)
        spare.wait_for_ordinals(*range(before), ready=False)
        eventually(lambda: len(spare.claims()) == before, within_s=30, what="the disks")
        spare.wait_until_updated(before)
    disks = spare.storage()
    staying = {name: uid for name, uid in uids(spare.vms()).items() if int(name.rpartition("-")[2]) < wanted}
    spare.scale(wanted)
    for _ in range(KILLS):
        there = len(spare.vms())
        with controller_process(spare.plane, tmp_path, *SLOWLY) as program:
            eventually(lambda there=there: len(spare.vms()) < there, within_s=30, what="some VMs are deleted")
            program.kill()
    assert len(spare.vms()) > wanted, "killed in the middle"
    with controller_for(spare, tmp_path, *AT_ONCE):
        spare.wait_for_ordinals(*range(wanted), ready=False)
        spare.wait_until_updated(wanted)
        spare.settle()
        assert uids(spare.vms()) == staying
        assert spare.storage() == disks
        owners = {name: owner_uid(volume) for name, volume in spare.data_volumes().items()}
        assert {name for name, owner in owners.items() if owner} == {f"root-{n}" for n in range(wanted)}
        assert max(spare.created().values()) == 1
        assert max(spare.deleted().values()) == 1
        # A kill closes the connection of a running delete, and the audit log may then not show its success.
        assert {name for name, _ in spare.answers("delete")} == {f"pool-{n}" for n in range(wanted, before)}


def test_a_controller_killed_in_the_middle_of_an_update_makes_no_more_vms_unavailable_than_allowed(
    spare: PoolNamespace, tmp_path: Path
) -> None:
    size, allowed = 10, 2
    # So the update is not over before the last kill.
    slow = {READY_AFTER: "3s"}
    with controller_process(spare.plane, tmp_path, *AT_ONCE):
        spare.make(size, maxUnavailable=allowed, template=vm_template(vmi_annotations=slow))
        spare.wait_ready(size)
    vms, vmis = uids(spare.vms()), set(uids(spare.vmis()).values())
    with watched(spare, spare.vmis) as seen:
        spare.change_template(vm_template(vmi_annotations=slow, memory="128M"))
        for _ in range(3):
            left = len(old_ones(spare, vmis))
            with controller_process(spare.plane, tmp_path, *AT_ONCE) as program:
                eventually(lambda left=left: len(old_ones(spare, vmis)) < left, within_s=30, what="restarts")
                program.kill()
        assert old_ones(spare, vmis), "killed in the middle"
        with controller_process(spare.plane, tmp_path, *AT_ONCE):
            spare.wait_ready(size, within_s=60)
    assert seen.least_ready()["pool"] >= size - allowed
    assert set(memories(spare.vmis()).values()) == {"128M"}
    assert uids(spare.vms()) == vms, "no VM was recreated"
    assert not spare.deleted()


def old_ones(pools: PoolNamespace, old: set[str]) -> set[str]:
    """The VMIs that still exist and have one of these UIDs."""
    return old & {vmi["metadata"]["uid"] for vmi in pools.vmis().values() if "deletionTimestamp" not in vmi["metadata"]}
