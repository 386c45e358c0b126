"""P2: members of a pool, and VMs that leave the pool. The controller never changes VMs of other owners."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.controller_process import eventually, owned_by, owner_uid, stays
from tests.integration.pool_namespace import (
    BEHAVIOR,
    FINALIZER,
    HOLD,
    POOL_LABELS,
    READY_AFTER,
    PoolNamespace,
    finalizers_of,
    uids,
    vm_template,
)

pytestmark = pytest.mark.cluster

DETACH = '{"metadata":{"ownerReferences":null}}'
NOT_OURS = "kubevirt.io/virtualMachineControllerFinalize"
ANOTHER_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "boss"}
KEEPS_DISKS = {"proactive": {"statePreservation": "Offline"}}
FAILING = {BEHAVIOR: "image-error", READY_AFTER: "100ms"}


def without_writes(vm: dict[str, Any]) -> tuple[Any, ...]:
    """The parts of a VM that only its user and KubeVirt may write."""
    metadata = vm["metadata"]
    return (
        metadata["uid"],
        metadata.get("labels"),
        metadata.get("annotations"),
        metadata.get("ownerReferences"),
        metadata.get("finalizers"),
        metadata.get("deletionTimestamp"),
        vm["spec"],
    )


def test_p2_a_vm_whose_labels_stop_matching_is_released_and_keeps_its_spec_and_foreign_metadata(
    pools: PoolNamespace,
) -> None:
    pool = pools.make_pool(2, template=vm_template(disks=("root",)), scaleInStrategy=KEEPS_DISKS)
    before = pools.wait_for_ordinals(0, 1)["pool-0"]
    boss = ANOTHER_OWNER | {"uid": pools.make_config_map("boss")["metadata"]["uid"]}
    owners = [boss, *before["metadata"]["ownerReferences"]]
    pools.change_vm("pool-0", {"metadata": {"ownerReferences": owners}})
    pools.hold_vm("pool-0")
    pools.change_vm("pool-0", {"metadata": {"labels": {"app": None, "kept": "yes"}}})
    after = pools.wait_for_ordinals(0, 1, 2)
    eventually(lambda: FINALIZER not in finalizers_of(pools.vm("pool-0")), what="our finalizer is removed")
    released = pools.vm("pool-0")
    assert released["metadata"]["ownerReferences"] == [boss]
    assert finalizers_of(released) == [NOT_OURS, HOLD]
    assert released["metadata"]["uid"] == before["metadata"]["uid"]
    assert released["spec"] == before["spec"]
    assert released["metadata"]["labels"]["kept"] == "yes"
    assert "kubevirt.io/vm-pool-revision-name" in released["metadata"]["labels"]
    assert owner_uid(pools.data_volumes()["root-0"]) == released["metadata"]["uid"], "its disk is still its own"
    assert sorted(owned_by(after.values(), pool)) == ["pool-1", "pool-2"], "it is replaced under a new ordinal"
    assert pools.vms_deleted() == {}
    pools.let_vm_go("pool-0")
    pools.delete_vm("pool-0")
    pools.wait_for_ordinals(1, 2)


def test_p2_a_vm_that_is_detached_as_documented_is_replaced_and_can_be_deleted_later(pools: PoolNamespace) -> None:
    pool = pools.make_pool(2, scaleInStrategy=KEEPS_DISKS)
    before = pools.wait_for_ordinals(0, 1)["pool-0"]
    pools.hold_vm("pool-0")
    pools.kubectl("patch", "vm", "pool-0", "--type", "merge", "--patch", DETACH)
    after = pools.wait_for_ordinals(0, 1, 2)
    eventually(lambda: finalizers_of(pools.vm("pool-0")) == [NOT_OURS, HOLD], what="only our finalizer is removed")
    assert sorted(owned_by(after.values(), pool)) == ["pool-1", "pool-2"]
    pools.wait_ready(2)
    detached = pools.vm("pool-0")
    assert detached["metadata"]["uid"] == before["metadata"]["uid"]
    assert detached["metadata"]["labels"] == before["metadata"]["labels"]
    pools.scale(0)
    pools.wait_for_ordinals(0)
    pools.let_vm_go("pool-0")
    pools.kubectl("delete", "vm", "pool-0", "--timeout=60s")
    pools.wait_until_seen()
    pools.scale(1)
    again = pools.wait_for_ordinals(0)["pool-0"]
    assert again["metadata"]["uid"] != before["metadata"]["uid"], "the name is free again"


def test_p2_a_detached_vm_can_be_deleted_while_the_pool_is_paused(pools: PoolNamespace) -> None:
    pools.make_pool(2, scaleInStrategy=KEEPS_DISKS)
    pools.wait_for_ordinals(0, 1)
    pools.change_pool({"spec": {"paused": True}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"))
    pools.kubectl("patch", "vm", "pool-0", "--type", "merge", "--patch", DETACH)
    pools.kubectl("delete", "vm", "pool-0", "--timeout=60s")
    stays(lambda: list(pools.vms()) == ["pool-1"], for_s=0.7, what="no VM is created meanwhile")


def test_p2_a_vm_that_left_its_pool_can_be_deleted_after_the_pool(pools: PoolNamespace) -> None:
    pools.make_pool(1, scaleInStrategy=KEEPS_DISKS)
    pools.wait_for_ordinals(0)
    pools.kubectl("patch", "vm", "pool-0", "--type", "merge", "--patch", DETACH)
    pools.kubectl("delete", "vmpool", "pool", "--timeout=60s")
    pools.wait_for_ordinals(0)
    assert finalizers_of(pools.vm("pool-0")) == [NOT_OURS]
    pools.kubectl("delete", "vm", "pool-0", "--timeout=60s")


def test_p2_pools_of_one_namespace_with_the_same_labels_do_not_change_each_others_vms(pools: PoolNamespace) -> None:
    one, other = pools.make_pool(2, name="pool"), pools.make_pool(2, name="pool-1")
    pools.wait_for_vms("pool-0", "pool-1", "pool-1-0", "pool-1-1")
    before = uids(pools.vms())
    pools.scale(0, name="pool")
    pools.wait_for_vms("pool-1-0", "pool-1-1")
    pools.scale(3, name="pool")
    pools.scale(1, name="pool-1")
    eventually(lambda: sorted(owned_by(pools.vms().values(), one)) == ["pool-0", "pool-1", "pool-2"])
    eventually(lambda: len(pools.vms()) == 4)
    vms = pools.vms()
    (kept,) = owned_by(vms.values(), other)
    assert vms[kept]["metadata"]["uid"] == before[kept]


def test_p2_a_failing_vm_that_is_no_member_is_neither_healed_nor_updated_nor_scaled_in(pools: PoolNamespace) -> None:
    template = vm_template(labels={"app": "stranger"}, vmi_annotations=FAILING)
    never_starts = vm_template(vmi_annotations={BEHAVIOR: "fail", READY_AFTER: "100ms"})
    pools.make_vm("stranger", labels={"app": "stranger"}, template=template)
    pools.make_vm("pool-7", labels=POOL_LABELS, template=never_starts)
    healing = {"startUpFailureThreshold": 1, "minFailingToStartDuration": "0s"}
    pools.make_pool(2, autohealing=healing)
    member = pools.wait_for_vms("stranger", "pool-7", "pool-0", "pool-1", ready=False)["pool-0"]
    pools.wait_ready(2)
    eventually(lambda: "Err" in pools.vm("stranger")["status"]["printableStatus"], what="one VM cannot pull its image")
    failures = eventually(lambda: pools.vm("pool-7")["status"].get("startFailure"), what="one VM fails to start")
    assert failures["consecutiveFailCount"] >= 1
    before = {name: without_writes(pools.vm(name)) for name in ("stranger", "pool-7")}

    pools.change_vm("pool-0", {"spec": {"template": {"metadata": {"annotations": FAILING}}}})
    pools.delete_vmi("pool-0")
    eventually(lambda: pools.vms().get("pool-0", member)["metadata"]["uid"] != member["metadata"]["uid"], what="healed")
    pools.wait_ready(2)
    pools.change_template(vm_template(memory="128M"))
    pools.wait_ready(2)
    pools.scale(0)
    pools.wait_for_vms("stranger", "pool-7", ready=False)
    assert {name: without_writes(pools.vm(name)) for name in before} == before
    assert not pools.vms_deleted().keys() & before.keys()
