"""DataVolumes that wait for a VMI, and DataVolumes that CDI deletes, on the real API server."""

from __future__ import annotations

from typing import Any

from sandbox.claims import WAITING_PHASE
from sandbox.datavolumes import DELETE_AFTER_COMPLETION
from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import PoolNamespace, is_vm_ready, vm_template


def template_with(annotations: dict[str, str], strategy: str) -> dict[str, Any]:
    template = vm_template(disks=("disk",), runStrategy=strategy)
    template["spec"]["dataVolumeTemplates"][0]["metadata"]["annotations"] = annotations
    return template


def test_a_disk_waits_for_its_vm_to_start(pools: PoolNamespace) -> None:
    pools.make_vm("vm", template=template_with({WAITING_PHASE: "WaitForFirstConsumer"}, "Halted"))

    def phase() -> str:
        volume = pools.data_volumes().get("disk") or {}
        return (volume.get("status") or {}).get("phase", "")

    eventually(lambda: phase() == "WaitForFirstConsumer", what="the DataVolume waits")
    assert pools.claims()["disk"].get("status", {}).get("phase") != "Bound"
    pools.change_vm("vm", {"spec": {"runStrategy": "Always"}})
    eventually(lambda: is_vm_ready(pools.vm("vm")), what="the VM is ready")
    assert phase() == "Succeeded"


def test_the_pvc_of_a_deleted_data_volume_belongs_to_the_vm(pools: PoolNamespace) -> None:
    pools.make_vm("vm", template=template_with({DELETE_AFTER_COMPLETION: "true"}, "Always"))
    eventually(lambda: is_vm_ready(pools.vm("vm")) and not pools.data_volumes(), what="the DataVolume is deleted")
    [owner] = pools.claims()["disk"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("VirtualMachine", pools.vm("vm")["metadata"]["uid"])
