"""R17, P11: ControllerRevisions keep the templates of sets and pools, so that a user can return to an earlier one."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.documents import (
    HOLD,
    REVISION,
    is_leaving,
    is_observed,
    reference_to,
    vm_template,
)
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace, controller_for
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

HASH = "vmherd.dev/template-hash"
HALTED = vm_template(runStrategy="Halted")


def written(owner: Namespace) -> Counter[tuple[str, int]]:
    """The number of the controller's writes of revisions, by verb and status code."""
    records = owner.requests("create", "update", "patch", "delete", resource="controllerrevisions")
    return Counter((each.verb, each.code) for each in records)


def test_r17_p11_a_revision_stores_the_template_survives_scaling_and_goes_with_its_owner(owner: Namespace) -> None:
    made = owner.make(2)
    owner.wait_ready(2)
    [(name, revision)] = owner.revisions().items()
    [vmi, _] = owner.vmis().values()
    if isinstance(owner, PoolNamespace):
        assert name == vmi["metadata"]["labels"][REVISION] == f"pool-{made['metadata']['generation']}"
        assert revision["data"] == made["spec"]
    else:
        hashed = vmi["metadata"]["labels"][HASH]
        assert (name, revision["metadata"]["labels"]) == (f"herd-{hashed}", {HASH: hashed})
        assert revision["data"] == {"template": made["spec"]["template"]}
    assert revision["revision"] == made["metadata"]["generation"]
    assert revision["metadata"]["ownerReferences"] == [reference_to(made, block=True)]
    assert owner.status()["currentRevision"] in name
    for replicas in (4, 0, 1):
        owner.scale(replicas)
        owner.wait_until_updated(replicas)
    assert written(owner) == {("create", 201): 1}
    owner.delete()
    eventually(lambda: not owner.revisions(), within_s=20, what="the revision goes with its owner")
    assert written(owner) == {("create", 201): 1}, "it is the garbage collector that deletes"


def test_r17_p11_flags_set_the_number_of_revisions_and_switch_the_history_of_sets_off(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    with controller_for(idle_namespace, tmp_path, "--no-replicaset-history", "--revision-history=1"):
        sets, pools = idle_namespace, idle_namespace.pools
        sets.make(1)
        pools.make(1, template=HALTED)
        for number, memory in enumerate(("65M", "66M", "67M"), 2):
            sets.change_memory(memory)
            pools.change_memory(memory)
            reacts(lambda number=number: f"pool-{number}" in pools.revisions(), what="the template is stored")
        reacts(lambda: pools.revisions().keys() == {"pool-3", "pool-4"}, what="the earlier revisions are pruned")
        pools.settle()
        assert pools.revisions().keys() == {"pool-3", "pool-4"}
        assert is_observed(sets.read())
        assert not sets.revisions()


def test_p11_a_pool_that_is_deleted_and_created_again_leaves_the_earlier_revisions_alone(pools: PoolNamespace) -> None:
    """The garbage collector cannot delete the earlier revisions, because a user holds them."""
    held: dict[str, dict[str, Any]] = {}
    for _ in range(3):
        since = pools.plane.audit_position()
        pools.make(1, template=HALTED)
        pools.wait_until_updated(1)
        (name,) = pools.revisions().keys() - held.keys()
        # The VM is pool-1 if the controller sees the end of the earlier pool-0 after the new pool.
        [vm] = pools.vms().values()
        assert vm["metadata"]["labels"][REVISION] == name
        assert pools.requests("patch", "update", "delete", since=since, resource="controllerrevisions") == []
        pools.revisions.hold(name)
        pools.delete()
        eventually(lambda: not pools.vms(), within_s=20, what="the VM is gone")
        eventually(lambda name=name: is_leaving(pools.revisions()[name]), within_s=20, what="a held revision")
        assert {name: pools.revisions()[name] for name in held} == held
        held[name] = pools.revisions()[name]
    assert all(each["metadata"]["finalizers"] == [HOLD] for each in held.values())
    for name in held:
        pools.revisions.let_go(name)
    reacts(lambda: not pools.revisions(), what="the revisions are gone")
