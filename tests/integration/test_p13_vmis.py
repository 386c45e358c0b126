"""P13: how a running VMI gets the new template: by a label, by a restart, or with a recreated VM."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.storage_classes import FIXED_SIZE
from tests.integration.availability import watched
from tests.integration.controller_process import eventually, owner_uid, stays
from tests.integration.pool_namespace import (
    HOLD,
    READY_AFTER,
    PoolNamespace,
    data_volume_template,
    finalizers_of,
    uids,
    vm_template,
)
from tests.integration.renewal import (
    VMIS,
    VMS,
    classes_of,
    done,
    hold_volume,
    memory_of,
    replacements,
    restarts,
    revision_of,
    vm_memory_of,
)

pytestmark = pytest.mark.cluster

QUICK = {READY_AFTER: "50ms"}


def quick(**template: Any) -> dict[str, Any]:
    return vm_template(vmi_annotations=QUICK, **template)


def proactive(**policy: Any) -> dict[str, Any]:
    return {"proactive": {"selectionPolicy": policy}}


def test_p13_opportunistic_vmis_take_the_change_at_their_next_restart(pools: PoolNamespace) -> None:
    pools.make_pool(2, updateStrategy={"opportunistic": {}})
    pools.wait_ready(2)
    running = uids(pools.vmis())
    pools.change_template(vm_template(memory="128M", disks=("data",)))
    eventually(lambda: all(vm_memory_of(vm) == "128M" for vm in pools.vms().values()), what="the VMs are patched")
    stays(lambda: uids(pools.vmis()) == running, for_s=1.0, what="the running VMIs")
    assert pools.requests("delete") == []
    eventually(lambda: pools.pool_status().get("updatedReplicas", 0) == 0, what="what runs is not up to date")
    pools.delete_vmi("pool-0")
    eventually(lambda: pools.pool_status().get("updatedReplicas") == 1)
    memory = {"pool-0": "128M", "pool-1": "64M"}
    eventually(lambda: {name: memory_of(vmi) for name, vmi in pools.vmis().items()} == memory, what="the new VMI")
    assert pools.vmis()["pool-1"]["metadata"]["uid"] == running["pool-1"]


def test_p13_vmis_with_the_revision_of_their_vm_are_not_changed(pools: PoolNamespace) -> None:
    pools.make_pool(3)
    pools.wait_ready(3)
    position = pools.plane.audit_position()
    running = uids(pools.vmis())
    pools.change_pool({"spec": {"maxUnavailable": 1, "updateStrategy": {"proactive": {}}}})
    pools.scale(5)
    pools.wait_ready(5)
    pools.delete_vmi("pool-1")
    eventually(lambda: pools.vmis().get("pool-1", {"metadata": {"uid": ""}})["metadata"]["uid"] != running["pool-1"])
    pools.wait_ready(5)
    stays(lambda: len(pools.vmis()) == 5, for_s=0.5)
    assert [done(pools, verb, kind, since=position) for verb in ("patch", "delete") for kind in (VMIS, VMS)] == [[]] * 4


def test_p13_if_the_vmi_template_is_the_same_only_the_label_of_the_vmi_changes(pools: PoolNamespace) -> None:
    before = vm_template(disks=("root",))
    before["metadata"]["annotations"] = {"note": "old"}
    pools.make_pool(4, template=before, maxUnavailable=1)
    pools.wait_ready(4)
    running, volumes = pools.vmis(), uids(pools.data_volumes())
    position = pools.plane.audit_position()
    after = vm_template(labels={"tier": "web"}, disks=("root",), runStrategy="RerunOnFailure")
    after["metadata"]["annotations"] = {"note": "new"}
    with watched(pools) as availability:
        pool = pools.change_template(after)
        pools.wait_ready(4)
    assert availability.least == {"pool": 4}
    revision = f"pool-{pool['metadata']['generation']}"
    vmis = pools.vmis()
    assert uids(vmis) == uids(running)
    assert {revision_of(vmi) for vmi in vmis.values()} == {revision}
    assert {vm["spec"]["runStrategy"] for vm in pools.vms().values()} == {"RerunOnFailure"}
    for name, vmi in vmis.items():
        assert vmi["spec"] == running[name]["spec"]
        assert vmi["metadata"]["annotations"] == running[name]["metadata"]["annotations"]
        others = {key: value for key, value in vmi["metadata"]["labels"].items() if value != revision}
        assert others.items() <= running[name]["metadata"]["labels"].items()
    assert sorted(each.name for each in done(pools, "patch", VMIS, since=position)) == sorted(vmis)
    assert pools.requests("delete", since=position) == []
    assert uids(pools.data_volumes()) == volumes


def test_p13_if_the_disks_differ_the_vm_is_recreated_with_new_disks(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=quick(disks=("root",)), maxUnavailable=1)
    pools.wait_ready(2)
    vms, vmis, volumes, claims = (
        uids(items) for items in (pools.vms(), pools.vmis(), pools.data_volumes(), pools.claims())
    )
    hold_volume(pools, "root-0", finalizers=(HOLD,))
    hold_volume(pools, "root-1", finalizers=(HOLD,))
    position = pools.plane.audit_position()
    template = quick(disks=("root",))
    template["spec"]["dataVolumeTemplates"] = [data_volume_template("root", storageClassName=FIXED_SIZE)]
    pools.change_template(template)

    def leaving() -> list[str]:
        return [name for name, vm in pools.vms().items() if "deletionTimestamp" in vm["metadata"]]

    (first,) = eventually(leaving, what="one VM is deleted")
    assert "foregroundDeletion" in finalizers_of(pools.vm(first))
    stays(
        lambda: leaving() == [first] and uids(pools.vms()) == vms,
        for_s=1.0,
        what="the VM waits for the removal of its disk",
    )
    for name in volumes:
        hold_volume(pools, name, finalizers=())
    pools.wait_for_ordinals(0, 1)
    pools.wait_ready(2)
    again = pools.data_volumes()
    for before, after in (
        (vms, pools.vms()),
        (vmis, pools.vmis()),
        (volumes, again),
        (claims, pools.claims()),
    ):
        assert after.keys() == before.keys()
        assert not set(uids(after).values()) & set(before.values()), "nothing of it is used again"
    owners = uids(pools.vms())
    assert {name: owner_uid(volume) for name, volume in again.items()} == {
        "root-0": owners["pool-0"],
        "root-1": owners["pool-1"],
    }
    assert set(classes_of(pools).values()) == {FIXED_SIZE}
    assert sorted(replacements(pools, since=position)) == ["pool-0", "pool-1"]
    assert restarts(pools, since=position) == []


def test_p13_otherwise_the_vmi_is_deleted_and_the_vm_controller_starts_a_new_one(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=vm_template(disks=("root",)))
    pools.wait_ready(3)
    vms, vmis, volumes = uids(pools.vms()), uids(pools.vmis()), uids(pools.data_volumes())
    position = pools.plane.audit_position()
    pool = pools.change_template(vm_template(disks=("root",), memory="128M"))
    pools.wait_ready(3)
    again = pools.vmis()
    assert not set(uids(again).values()) & set(vmis.values())
    assert {memory_of(vmi) for vmi in again.values()} == {"128M"}
    assert {revision_of(vmi) for vmi in again.values()} == {f"pool-{pool['metadata']['generation']}"}
    assert uids(pools.vms()) == vms
    assert uids(pools.data_volumes()) == volumes
    assert sorted(restarts(pools, since=position)) == sorted(vms)
    assert replacements(pools, since=position) == []
    assert done(pools, "patch", VMIS, since=position) == []


def test_p13_vms_that_kubevirt_does_not_start_again_are_restarted_through_the_subresource(
    pools: PoolNamespace,
) -> None:
    pools.make_pool(2, template=quick(runStrategy="RerunOnFailure"), maxUnavailable=1)
    pools.wait_ready(2)
    position = pools.plane.audit_position()
    with watched(pools) as availability:
        pools.change_template(quick(runStrategy="RerunOnFailure", memory="128M"))
        pools.wait_ready(2)
    assert {memory_of(vmi) for vmi in pools.vmis().values()} == {"128M"}
    assert availability.least == {"pool": 1}
    assert restarts(pools, since=position) == []
    sent = [record.name for record in pools.requests("update", since=position)]
    assert sorted(sent) == ["pool-0", "pool-1"], "one request for each VM"


def test_p13_a_vm_whose_snapshot_is_being_taken_waits_and_the_other_vms_are_restarted(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=quick(), maxUnavailable=1)
    pools.wait_ready(3)
    running = uids(pools.vmis())
    pools.change_vm_status("pool-1", {"snapshotInProgress": "monday"})
    pools.wait_until_seen()
    pools.change_template(quick(memory="128M"))
    eventually(lambda: pools.pool_status().get("updatedReplicas") == 2)
    eventually(lambda: pools.told("UpdateHeld")["pool"] == 1, what="an Event reports the wait")
    stays(lambda: uids(pools.vmis())["pool-1"] == running["pool-1"], for_s=0.5, what="the VMI of the VM that waits")
    assert vm_memory_of(pools.vm("pool-1")) == "64M"
    pools.change_vm_status("pool-1", {"snapshotInProgress": None})
    pools.wait_ready(3)
    assert {memory_of(vmi) for vmi in pools.vmis().values()} == {"128M"}
