"""P3, P10, P21: the disks of VMs. Kept disks, disks of others, and changes of disks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane import documents
from tests.controlplane.namespace import PoolNamespace, controller_for
from tests.controlplane.refusals import denied
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

DATA_VOLUMES = "datavolumes.cdi.kubevirt.io"
MOST_DISRUPTIVE = "vmherd.dev/most-disruptive-action"
DESCENDING = {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}
OFFLINE = {"proactive": {"statePreservation": "Offline", **DESCENDING}}
SLOW = ("example.org/slow",)
HALTED_WITH_DISK = documents.vm_template(disks=("root",), runStrategy="Halted")


def gone(name: str) -> dict[str, Any]:
    """A VM that does not exist any more, as the owner of its disk."""
    vm = documents.vm_document(name)
    return {**vm, "metadata": {**vm["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}


@pytest.mark.parametrize("whole", [True, False], ids=["a disk", "a claim without its DataVolume"])
def test_p3_a_create_waits_for_a_disk_that_the_old_vm_owns_and_this_is_no_failure(
    pools: PoolNamespace, whole: bool
) -> None:
    """CDI can delete a finished DataVolume. Its PersistentVolumeClaim then belongs to the VM."""
    pools.make(0, template=documents.vm_template(disks=("root",)))
    pools.settle()
    if whole:
        pools.make_disk("root-0", owner=gone("pool-0"), finalizers=SLOW)
    else:
        references = [documents.reference_to(gone("pool-0"))]
        pools.claims.make(documents.claim_document("root-0", finalizers=SLOW, ownerReferences=references))
    pools.scale(1)
    reacts(lambda: any(each.name == "root-0" for each in pools.requests("get")), what="the disk is read")
    pools.settle(no_timer_within_s=0)
    assert not pools.vms()
    assert pools.condition("ReplicaFailure") is None
    assert pools.reasons()["FailedCreate"] == 0
    for objects in (pools.claims, pools.data_volumes):
        for name in objects():
            objects.set_finalizers(name)
    pools.wait_for_ordinals(0)
    owners = {owner["uid"] for owner in pools.claims.get("root-0")["metadata"]["ownerReferences"]}
    assert gone("pool-0")["metadata"]["uid"] not in owners


@pytest.fixture
def without_cdi(own_plane: ControlPlane, tmp_path: Path) -> Iterator[PoolNamespace]:
    """A cluster without the kind DataVolume, and a controller for this cluster."""
    kubectl = Kubectl(own_plane.kubeconfig)
    kubectl("delete", "crd", DATA_VOLUMES)
    pools = PoolNamespace(own_plane, "bare")
    kubectl("create", "namespace", pools.namespace)
    with controller_for(pools, tmp_path) as program:
        yield pools
        assert program.working


def test_p10_without_cdi_claims_are_preserved_and_data_volumes_too_once_they_exist(without_cdi: PoolNamespace) -> None:
    pools = without_cdi
    volume = {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}}
    definition = Path(__file__).parents[2] / "sandbox/crds/cdi.kubevirt.io_datavolumes.yaml"
    pools.claims.make(documents.claim_document("claim"))
    pools.make(3, template=documents.vm_template(disks=("root",), volumes=(volume,)), scaleInStrategy=OFFLINE)
    vms = pools.wait_for_ordinals(0, 1, 2, ready=False)
    owned = {"metadata": {"ownerReferences": [documents.reference_to(vms["pool-2"], controller=False)]}}
    pools.claims.change("claim", owned)
    pools.scale(2)
    pools.wait_for_ordinals(0, 1, ready=False)
    assert "ownerReferences" not in pools.claims()["claim"]["metadata"]
    assert pools.condition("ReplicaFailure") is None

    pools.kubectl("apply", "-f", str(definition))
    pools.kubectl("wait", "--for=condition=Established", "crd", DATA_VOLUMES)
    owner = documents.reference_to(vms["pool-1"], controller=False)
    pools.kubectl.apply(documents.data_volume_document("root-1", ownerReferences=[owner]))
    pools.scale(1)
    pools.wait_for_ordinals(0, ready=False)
    assert "ownerReferences" not in pools.data_volumes()["root-1"]["metadata"]
    assert documents.FINALIZER in documents.finalizers_of(pools.vms.get("pool-0"))


def test_p10_a_vm_waits_until_its_disks_are_preserved_even_after_many_refusals(pools: PoolNamespace) -> None:
    pools.make(2, template=HALTED_WITH_DISK, scaleInStrategy=OFFLINE)
    names = {"root-0", "root-1"}
    eventually(lambda: pools.data_volumes().keys() == pools.claims().keys() == names, within_s=20, what="the disks")
    disks = pools.storage()
    with denied(pools, pools.data_volumes, name="root-1"):
        pools.scale(1)
        reacts(lambda: (pools.condition("ReplicaFailure") or {}).get("reason") == "FailedScaleIn")
        pools.settle()
        assert documents.FINALIZER in documents.finalizers_of(pools.vms.get("pool-1")), "the VM is held"
        assert documents.owner_uid(pools.data_volumes()["root-1"]) == pools.vms.get("pool-1")["metadata"]["uid"]
    pools.wait_for_vms("pool-0", ready=False, within_s=90)
    assert documents.owner_uid(pools.data_volumes()["root-1"]) == ""
    reacts(lambda: pools.condition("ReplicaFailure") is None)
    pools.settle()
    assert pools.storage() == disks


def everything(pools: PoolNamespace) -> list[dict[str, str]]:
    return [documents.uids(each) for each in (pools.vms(), pools.vmis(), pools.data_volumes(), pools.claims())]


def test_p21_a_size_that_the_disk_cannot_get_holds_the_update(pools: PoolNamespace) -> None:
    before = {"storageClassName": documents.FIXED_SIZE}
    after = {**before, "size": "2Gi"}
    reason = "the storageclass that provisions the pvc must support resize"
    pools.make(2, template=documents.with_disk(**before))
    pools.wait_ready(2)
    kept = everything(pools)
    pools.change_template(documents.with_disk(**after))
    reacts(lambda: reason in pools.status().get("problem", ""), what="the reason")
    reacts(lambda: any(reason in each for each in pools.messages("UpdateHeld")), what="an Event")
    pools.settle()
    assert everything(pools) == kept
    assert {claim["spec"]["resources"]["requests"]["storage"] for claim in pools.claims().values()} == {"1Gi"}
    assert pools.status().get("updatedReplicas", 0) == 0
    pools.change_template(documents.with_disk(**before))
    pools.wait_ready(2)
    assert everything(pools) == kept
