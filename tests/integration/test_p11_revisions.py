"""P11: ControllerRevisions keep the specs that VMs were made from, and unused revisions are pruned."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.controller_process import (
    PATIENT_LEASE,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    stays,
)
from tests.integration.pool_namespace import HOLD, POOL_LABELS, PoolNamespace, uids, vm_template
from tests.integration.renewal import revision_of, template_revision_of

pytestmark = pytest.mark.cluster

HALTED = {"runStrategy": "Halted"}
HISTORY = 5


def halted(**template: Any) -> dict[str, Any]:
    return vm_template(**HALTED, **template)


def edit(pools: PoolNamespace, replicas: int, *versions: int, **template: Any) -> list[str]:
    """Roll out one template after the other. Returns the names of their revisions."""
    made = []
    for version in versions:
        pool = pools.change_template(halted(memory=f"{version}Mi", **template))
        pools.wait_until_updated(replicas)
        made.append(f"pool-{pool['metadata']['generation']}")
    return made


def revisions_made(pools: PoolNamespace) -> Counter[int]:
    """The number of the controller's create requests for revisions, by status code."""
    return Counter(each.code for each in pools.requests("create") if each.resource == "controllerrevisions")


def pruned(pools: PoolNamespace, *left: str) -> None:
    eventually(lambda: pools.revisions().keys() == set(left), what=f"only {left} are left")
    stays(lambda: pools.revisions().keys() == set(left), for_s=0.5, what="no other revision is deleted")


def test_p11_a_revision_stores_the_spec_of_the_vms_and_belongs_to_the_pool(pools: PoolNamespace) -> None:
    pool = pools.make_pool(2, template=halted(disks=("root",)), autohealing={}, maxUnavailable="50%")
    vms = pools.wait_for_ordinals(0, 1, ready=False)
    pools.wait_until_updated(2)
    (name,) = pools.revisions()
    revision = pools.revisions()[name]
    assert name == f"pool-{pool['metadata']['generation']}"
    assert revision["revision"] == pool["metadata"]["generation"]
    assert revision["data"] == pool["spec"]
    assert revision["metadata"]["ownerReferences"] == [
        {
            "apiVersion": pool["apiVersion"],
            "kind": "VirtualMachinePool",
            "name": "pool",
            "uid": pool["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert {(revision_of(vm), template_revision_of(vm)) for vm in vms.values()} == {(name, name)}
    assert pools.pool_status()["currentRevision"] == pools.pool_status()["updateRevision"] == name
    pools.kubectl("delete", "vmpool", "pool", "--timeout=60s")
    eventually(lambda: not pools.revisions(), what="the revisions go with the pool")


def test_p11_changes_outside_the_template_such_as_scaling_make_no_revision(pools: PoolNamespace) -> None:
    pools.make_pool(1, template=halted())
    pools.wait_until_updated(1)
    kept = uids(pools.revisions())
    for replicas in (4, 2, 0, 3):
        pools.scale(replicas)
        pools.wait_until_updated(replicas)
    others = {
        "maxUnavailable": 1,
        "autohealing": {},
        "updateStrategy": {"opportunistic": {}},
        "scaleInStrategy": {"unmanaged": {}},
    }
    for field, value in others.items():
        pools.change_pool({"spec": {field: value}})
    pools.wait_until_updated(3)
    pools.scale(5)
    pools.wait_until_updated(5)
    assert uids(pools.revisions()) == kept
    assert revisions_made(pools) == {201: 1}
    assert {revision_of(vm) for vm in pools.vms().values()} == kept.keys()


def test_p11_a_new_template_or_name_generation_makes_a_revision_with_the_pools_generation(pools: PoolNamespace) -> None:
    pools.make_pool(1, template=halted())
    pools.wait_until_updated(1)
    pools.scale(2)
    pools.wait_until_updated(2)
    template = halted(labels={"tier": "web"})
    third = pools.change_template(template)
    pools.wait_until_updated(2)
    with_secret = halted(labels={"tier": "web"}, volumes=({"name": "key", "secret": {"secretName": "key"}},))
    indexed = {"virtualMachineTemplate": with_secret, "nameGeneration": {"appendIndexToSecretRefs": True}}
    fourth = pools.change_pool({"spec": indexed})
    pools.wait_until_updated(2)
    assert [pool["metadata"]["generation"] for pool in (third, fourth)] == [3, 4]
    revisions = pools.revisions()
    assert revisions.keys() == {"pool-1", "pool-3", "pool-4"}
    assert revisions["pool-3"]["data"] == third["spec"]
    assert revisions["pool-4"]["data"] == fourth["spec"]
    assert revisions["pool-1"]["data"]["replicas"] == 1, "what is kept is never written to again"
    assert {revision_of(vm) for vm in pools.vms().values()} == {"pool-4"}


def test_p11_the_revision_of_a_template_without_vms_is_not_kept(pools: PoolNamespace) -> None:
    pools.make_pool(0, template=halted())
    for memory in ("1Gi", "2Gi"):
        pools.change_template(halted(memory=memory))
        pools.wait_until_updated(0)
    assert pools.revisions() == {}
    assert pools.pool_status()["updateRevision"] == "pool-3"
    pools.scale(1)
    pools.wait_until_updated(1)
    (name,) = pools.revisions()
    assert {revision_of(vm) for vm in pools.vms().values()} == {name}


def test_p11_going_back_to_an_earlier_template_uses_its_revision_again(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=halted(memory="1Mi"))
    pools.wait_until_updated(2)
    edit(pools, 2, 2)
    kept = uids(pools.revisions())
    for version, name in ((1, "pool-1"), (2, "pool-2"), (1, "pool-1")):
        edit(pools, 2, version)
        assert {(revision_of(vm), template_revision_of(vm)) for vm in pools.vms().values()} == {(name, name)}
        assert pools.pool_status()["updateRevision"] == name
    assert uids(pools.revisions()) == kept
    assert revisions_made(pools) == {201: 2}


def test_p11_unused_revisions_are_pruned_except_the_newest_for_undo(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=halted(memory="1Mi"))
    pools.wait_until_updated(2)
    names = ["pool-1", *edit(pools, 2, *range(2, 8))]
    pruned(pools, *names[-HISTORY - 1 :])
    names += edit(pools, 2, 8, 9)
    pruned(pools, *names[-HISTORY - 1 :])
    assert pools.pool_status()["updateRevision"] == names[-1]


def test_p11_a_flag_sets_the_number_of_revisions_for_undo(idle_namespace: ReplicaSetNamespace, tmp_path: Path) -> None:
    pools = PoolNamespace(idle_namespace.plane, idle_namespace.namespace)
    with controller_process(idle_namespace.plane, tmp_path, "--revision-history", "1", *PATIENT_LEASE):
        pools.make_pool(1, template=halted(memory="1Mi"))
        pools.wait_until_updated(1)
        names = ["pool-1", *edit(pools, 1, 2, 3, 4)]
        pruned(pools, *names[-2:])


def test_p11_revisions_of_an_earlier_pool_of_the_same_name_are_not_used_and_not_changed(pools: PoolNamespace) -> None:
    data = {"spec": "somebody else's"}
    metadata = {"name": "pool-1", "labels": POOL_LABELS}
    pools.kubectl.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": metadata,
            "revision": 1,
            "data": data,
        }
    )
    pools.make_pool(2, template=halted())
    pools.wait_until_updated(2)
    (name,) = pools.revisions().keys() - {"pool-1"}
    assert {revision_of(vm) for vm in pools.vms().values()} == {name}
    assert pools.revisions()["pool-1"]["data"] == data


def test_p11_a_pool_that_is_deleted_and_created_again_leaves_the_earlier_revisions_alone(pools: PoolNamespace) -> None:
    """The garbage collector cannot delete the earlier revisions, because a user holds them."""
    held: dict[str, dict[str, Any]] = {}
    for _ in range(3):
        since = pools.plane.audit_position()
        pools.make_pool(1, template=halted())
        pools.wait_until_updated(1)
        (name,) = pools.revisions().keys() - held.keys()
        # The VM is pool-1 if the controller sees the end of the earlier pool-0 after the new pool.
        [vm] = pools.vms().values()
        assert revision_of(vm) == name
        written = [each for each in pools.requests(since=since) if each.resource == "controllerrevisions"]
        assert {each.name for each in written if each.verb in ("patch", "update", "delete")} == set()
        pools.change_revision(name, {"metadata": {"finalizers": [HOLD]}})
        pools.kubectl("delete", "vmpool", "pool", "--timeout=60s")
        eventually(lambda: not pools.vms(), what="the VM is gone")
        eventually(lambda name=name: "deletionTimestamp" in pools.revisions()[name]["metadata"], what="a held revision")
        assert {name: pools.revisions()[name] for name in held} == held
        held[name] = pools.revisions()[name]
    for name in held:
        pools.change_revision(name, {"metadata": {"finalizers": None}})
    eventually(lambda: not pools.revisions(), what="the revisions are gone")
