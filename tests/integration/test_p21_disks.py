"""P21: a disk that only becomes larger is expanded. Another change of the disks never surprises a user."""

from __future__ import annotations

import pytest

from sandbox.storage_classes import FIXED_SIZE, STANDARD
from tests.integration.controller_process import eventually, owner_uid, stays
from tests.integration.pool_namespace import PoolNamespace, uids
from tests.integration.renewal import classes_of, messages_of, printable_status_of, with_disk

pytestmark = pytest.mark.cluster

MOST_DISRUPTIVE = "vmherd.dev/most-disruptive-action"
OFFLINE = {"proactive": {"statePreservation": "Offline"}}


def everything(pools: PoolNamespace) -> list[dict[str, str]]:
    return [uids(each) for each in (pools.vms(), pools.vmis(), pools.data_volumes(), pools.claims())]


def requests(pools: PoolNamespace) -> set[str]:
    return {claim["spec"]["resources"]["requests"]["storage"] for claim in pools.claims().values()}


def capacities(pools: PoolNamespace) -> set[str]:
    return {claim["status"].get("capacity", {}).get("storage", "") for claim in pools.claims().values()}


def wait_until_stalled(pools: PoolNamespace, *words: str, reason: str = "UpdateHeld") -> None:
    """Wait until the pool is stalled for this reason, and its status has these words."""

    def stalled() -> bool:
        condition = pools.pool_condition("Stalled") or {"reason": ""}
        return condition["reason"] == reason and all(word in pools.pool_status()["problem"] for word in words)

    eventually(stalled, what=f"the status says {words}")


@pytest.mark.parametrize("strategy", [None, OFFLINE], ids=["disabled", "offline"])
def test_p21_a_larger_disk_is_expanded_and_every_object_stays(
    pools: PoolNamespace, strategy: dict[str, object] | None
) -> None:
    pools.make_pool(3, template=with_disk(), maxUnavailable=1, scaleInStrategy=strategy)
    pools.wait_ready(3)
    before = everything(pools)
    pools.change_template(with_disk(size="2Gi"))
    pools.wait_ready(3)
    assert requests(pools) == {"2Gi"}
    eventually(lambda: capacities(pools) == {"2Gi"}, what="the claims are larger")
    assert everything(pools) == before
    pools.scale(4)
    pools.wait_ready(4)
    assert requests(pools) == {"2Gi"}


def test_p21_a_claim_whose_class_cannot_expand_holds_the_update(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=with_disk(storageClassName=FIXED_SIZE))
    pools.wait_ready(2)
    before = everything(pools)
    pools.change_template(with_disk(storageClassName=FIXED_SIZE, size="2Gi"))
    words = "the storageclass that provisions the pvc must support resize"
    eventually(lambda: words in pools.pool_status().get("problem", ""), what="the status has the server's reason")
    eventually(lambda: any(words in each for each in messages_of(pools, "UpdateHeld")), what="an Event")
    stays(lambda: everything(pools) == before, for_s=2.0, what="all objects")
    assert requests(pools) == {"1Gi"}
    assert pools.pool_status().get("updatedReplicas", 0) == 0


def test_p21_a_smaller_disk_holds_the_update(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=with_disk())
    pools.wait_ready(2)
    before = everything(pools)
    pools.change_template(with_disk(size="500Mi"))
    wait_until_stalled(pools, "a disk cannot become smaller", "root-0", f"{MOST_DISRUPTIVE}=recreate")
    stays(lambda: everything(pools) == before, for_s=2.0, what="all objects")
    pools.change_template(with_disk())
    eventually(lambda: pools.pool_condition("Stalled") is None, what="the old template is back")
    assert everything(pools) == before


def test_p21_disks_that_the_pool_keeps_are_recreated_only_with_leave(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=with_disk(), scaleInStrategy=OFFLINE, maxUnavailable=1)
    pools.wait_ready(2)
    before = everything(pools)
    pools.change_template(with_disk(storageClassName=FIXED_SIZE))
    wait_until_stalled(pools, "root-0", "statePreservation keeps the disks", f"{MOST_DISRUPTIVE}=recreate")
    eventually(lambda: messages_of(pools, "UpdateHeld"), what="an Event")
    stays(lambda: everything(pools) == before, for_s=2.0, what="all objects")
    pools.change_pool({"metadata": {"annotations": {MOST_DISRUPTIVE: "recreate"}}})
    pools.wait_ready(2, within_s=120)
    assert set(classes_of(pools).values()) == {FIXED_SIZE}
    for old, new in zip(before, everything(pools), strict=True):
        assert not set(old.values()) & set(new.values())
    assert pools.pool_condition("Stalled") is None


def test_p21_a_disk_of_another_pool_is_reported_and_not_used(pools: PoolNamespace) -> None:
    pools.make_pool(1, template=with_disk())
    pools.wait_ready(1)
    before = everything(pools)
    pools.make_pool(1, name="second", template=with_disk())
    eventually(lambda: "the disk root-0 belongs to pool-0" in pools.pool_status("second").get("problem", ""))
    assert (pools.pool_condition("ReplicaFailure", name="second") or {})["reason"] == "FailedScaleOut"
    assert everything(pools) == before
    assert owner_uid(pools.data_volumes()["root-0"]) == pools.vm("pool-0")["metadata"]["uid"]
    pools.scale(0)
    pools.wait_for_vms("second-0")
    assert not {*before[2].values(), *before[3].values()} & {*uids(pools.data_volumes()).values()}
    eventually(lambda: pools.pool_condition("ReplicaFailure", name="second") is None, what="the condition goes")


def test_p21_a_vm_that_its_user_stopped_keeps_its_disks_and_stays_outdated(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=with_disk())
    pools.wait_ready(2)
    before = uids(pools.claims())
    pools.change_vm("pool-1", {"spec": {"runStrategy": "Halted"}})
    eventually(lambda: printable_status_of(pools.vm("pool-1")) == "Stopped")
    pools.change_template(with_disk(storageClassName=FIXED_SIZE))
    wanted = {"root-0": FIXED_SIZE, "root-1": STANDARD}
    eventually(lambda: classes_of(pools) == wanted, what="the running VM has a new disk")
    eventually(lambda: pools.pool_status().get("updatedReplicas") == 1)
    stays(lambda: classes_of(pools) == wanted, for_s=2.0, what="the disk of the stopped VM")
    assert uids(pools.claims())["root-1"] == before["root-1"]


def test_p21_a_vm_whose_disk_fails_gets_the_new_disk(pools: PoolNamespace) -> None:
    pools.make_pool(1, template=with_disk(behavior="datavolume-error"))
    eventually(lambda: "pool-0" in pools.vms() and printable_status_of(pools.vm("pool-0")) == "DataVolumeError")
    pools.change_template(with_disk(storageClassName=FIXED_SIZE))
    pools.wait_ready(1)
    assert classes_of(pools) == {"root-0": FIXED_SIZE}
