"""P32 on a real control plane: VMs rest beside the wanted ones, and are ready soon after a scale-out."""

import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.controlplane.documents import READY_AFTER, vm_template
from tests.controlplane.namespace import PoolNamespace, controller_for, new_pool_namespace
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

STANDBY, MODE, STATE = "vmherd.dev/standby", "vmherd.dev/standby-mode", "vmherd.dev/standby-state"
IN_SERVICE = {"vmherd.dev/in-service": "true"}
BOOT, IMPORT = "2s", "6s"
SCALE = 20
"""So many times faster than a boot of 40 s and an import of 120 s."""


def template() -> dict[str, Any]:
    found = vm_template(vmi_annotations={READY_AFTER: BOOT}, disks=("root",))
    found["spec"]["dataVolumeTemplates"][0]["metadata"]["annotations"] = {READY_AFTER: IMPORT}
    return found


def states(pools: PoolNamespace) -> dict[str, str]:
    """The mark of each VM, or its run strategy."""
    found = {name: vm["metadata"].get("annotations", {}).get(STATE) for name, vm in pools.vms().items()}
    found = {name: mark and mark.partition(" ")[0] for name, mark in found.items()}
    return {name: mark or pools.vms.get(name)["spec"]["runStrategy"] for name, mark in found.items()}


def scale_out_s(pools: PoolNamespace, replicas: int) -> float:
    """Scale out, and return the simulated seconds until all are ready."""
    began = time.monotonic()
    pools.scale(replicas)
    pools.wait_ready(replicas, within_s=60)
    return (time.monotonic() - began) * SCALE


def test_p32_a_woken_standby_is_ready_sooner_than_a_new_vm(own_plane: ControlPlane, tmp_path: Path) -> None:
    with simulator(own_plane), new_pool_namespace(own_plane) as pools:
        with controller_for(pools, tmp_path, "--no-leader-elect") as program:
            pools.make(1, annotations={STANDBY: "1"}, template=template())
            rested = {"pool-0": "Always", "pool-1": "resting"}
            eventually(lambda: states(pools) == rested, within_s=60, what="a standby rests")
            assert pools.status()["replicas"] == 1
            program.kill()
        with controller_for(pools, tmp_path, "--no-leader-elect"):
            uid = pools.vms.get("pool-1")["metadata"]["uid"]
            woken_s = scale_out_s(pools, 2)
            assert pools.vms.get("pool-1")["metadata"]["uid"] == uid
            refilled = {"pool-0": "Always", "pool-1": "Always", "pool-2": "resting"}
            eventually(lambda: states(pools) == refilled, within_s=60, what="another standby rests")
            pools.change({"metadata": {"annotations": {STANDBY: None}}})
            eventually(lambda: pools.vms().keys() == {"pool-0", "pool-1"}, within_s=30, what="no standby is left")
            created_s = scale_out_s(pools, 3)
    print(f"from scale-out to ready: {woken_s:.0f} s with a stopped standby, {created_s:.0f} s without")
    assert woken_s < created_s / 2


def test_p32_a_paused_standby_is_ready_at_once_and_a_drain_of_its_node_makes_it_again(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    made = template()
    made["spec"]["template"]["metadata"].setdefault("labels", {}).update(IN_SERVICE)
    with (
        simulator(own_plane),
        new_pool_namespace(own_plane) as pools,
        controller_for(pools, tmp_path, "--no-leader-elect"),
    ):

        def rests(name: str, other_than: str = "") -> bool:
            vm = pools.vms().get(name)
            return vm is not None and vm["metadata"]["uid"] != other_than and states(pools)[name] == "paused"

        pools.make(1, annotations={STANDBY: "1", MODE: "paused"}, template=made)
        eventually(lambda: rests("pool-1"), within_s=60, what="a standby rests")
        first = pools.vms.get("pool-1")["metadata"]["uid"]
        pools.vmis.change("pool-1", {"status": {"evacuationNodeName": "node01"}})
        eventually(lambda: rests("pool-1", other_than=first), within_s=60, what="the standby is made again")
        assert pools.status()["replicas"] == 1
        vmi = pools.vmis.get("pool-1")["metadata"]
        assert vmi["labels"]["vmherd.dev/in-service"] == "false"
        woken_s = scale_out_s(pools, 2) / SCALE
        assert pools.vmis.get("pool-1")["metadata"]["uid"] == vmi["uid"]
        eventually(lambda: rests("pool-2"), within_s=60, what="another standby rests")
        served = {**vmi["labels"], **IN_SERVICE}
        eventually(lambda: pools.vmis.get("pool-1")["metadata"]["labels"] == served, what="the woken VM is in service")
    print(f"from scale-out to ready: {woken_s:.1f} s with a paused standby, not scaled")
    assert woken_s < 3
