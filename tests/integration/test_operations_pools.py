"""Pools survive crashes and outages of the controller and the API server, and work with kubectl and autoscalers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.controlplane import ControlPlane
from tests.integration.availability import watched
from tests.integration.controller_process import controller_process, eventually, owner_uid, stays
from tests.integration.pool_namespace import (
    READY_AFTER,
    PoolNamespace,
    new_pool_namespace,
    simulator,
    uids,
    vm_template,
)
from tests.integration.renewal import memory_of

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
        spare.make_pool(before, template=vm_template(disks=("root",), runStrategy="Halted"), scaleInStrategy=OFFLINE)
        spare.wait_for_ordinals(*range(before), ready=False)
        eventually(lambda: len(spare.claims()) == before, what="the disks")
        spare.wait_until_updated(before)
    disks = uids(spare.data_volumes()), uids(spare.claims())
    staying = {name: uid for name, uid in uids(spare.vms()).items() if int(name.rpartition("-")[2]) < wanted}
    spare.scale(wanted)
    for _ in range(KILLS):
        there = len(spare.vms())
        with controller_process(spare.plane, tmp_path, *SLOWLY) as program:
            eventually(lambda there=there: len(spare.vms()) < there, what="some VMs are deleted")
            program.kill()
    assert len(spare.vms()) > wanted, "killed in the middle"
    with controller_process(spare.plane, tmp_path, *AT_ONCE):
        spare.wait_for_ordinals(*range(wanted), ready=False)
        spare.wait_until_updated(wanted)
        stays(lambda: uids(spare.vms()) == staying, what="the VMs that stay")
        assert (uids(spare.data_volumes()), uids(spare.claims())) == disks
        owners = {name: owner_uid(volume) for name, volume in spare.data_volumes().items()}
        assert {name for name, owner in owners.items() if owner} == {f"root-{n}" for n in range(wanted)}
        assert max(spare.vms_created().values()) == 1
        assert max(spare.vms_deleted().values()) == 1
        # A kill closes the connection of a running delete, and the audit log may then not show its success.
        assert {name for name, _ in spare.asked_of_vms("delete")} == {f"pool-{n}" for n in range(wanted, before)}


def test_a_controller_killed_in_the_middle_of_an_update_makes_no_more_vms_unavailable_than_allowed(
    spare: PoolNamespace, tmp_path: Path
) -> None:
    size, allowed = 10, 2
    # So the update is not over before the last kill.
    slow = {READY_AFTER: "3s"}
    with controller_process(spare.plane, tmp_path, *AT_ONCE):
        spare.make_pool(size, maxUnavailable=allowed, template=vm_template(vmi_annotations=slow))
        spare.wait_ready(size)
    vms, vmis = uids(spare.vms()), set(uids(spare.vmis()).values())
    with watched(spare) as availability:
        spare.change_template(vm_template(vmi_annotations=slow, memory="128M"))
        for _ in range(3):
            left = len(old_ones(spare, vmis))
            with controller_process(spare.plane, tmp_path, *AT_ONCE) as program:
                eventually(lambda left=left: len(old_ones(spare, vmis)) < left, what="the update is under way")
                program.kill()
        assert old_ones(spare, vmis), "killed in the middle"
        with controller_process(spare.plane, tmp_path, *AT_ONCE):
            spare.wait_ready(size, within_s=60)
    assert availability.least["pool"] >= size - allowed
    assert {memory_of(vmi) for vmi in spare.vmis().values()} == {"128M"}
    assert uids(spare.vms()) == vms, "no VM was recreated"
    assert not spare.vms_deleted()


def old_ones(pools: PoolNamespace, old: set[str]) -> set[str]:
    """The VMIs that still exist and have one of these UIDs."""
    return old & {vmi["metadata"]["uid"] for vmi in pools.vmis().values() if "deletionTimestamp" not in vmi["metadata"]}


def test_kubectl_scales_a_pool_and_an_autoscaler_can_be_set_on_it(pools: PoolNamespace) -> None:
    pools.make_pool(1)
    pools.wait_ready(1)
    pools.kubectl("scale", "vmpool", "pool", "--replicas=3")
    pools.wait_ready(3)
    path = f"/apis/pool.kubevirt.io/v1beta1/namespaces/{pools.namespace}/virtualmachinepools/pool/scale"
    scale = json.loads(pools.kubectl("get", "--raw", path).stdout)
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    selected = pools.kubectl("get", "vmi", f"--selector={scale['status']['selector']}", "--output=name").stdout
    assert len(selected.split()) == 3, "its selector finds those whose load counts"
    pools.kubectl("autoscale", "vmpool", "pool", "--min=1", "--max=5", "--cpu=50%")
    (autoscaler,) = pools.kubectl.json("get", "hpa")["items"]
    assert autoscaler["spec"]["scaleTargetRef"]["kind"] == "VirtualMachinePool"
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == "pool"
    pools.kubectl("scale", "vmpool", "pool", "--replicas=0")
    pools.wait_for_vms()
