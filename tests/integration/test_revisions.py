"""R17, P11: ControllerRevisions keep the templates of sets and pools, so that a user can return to an earlier one."""

from collections import Counter
from pathlib import Path

import pytest

from tests.controlplane.documents import (
    REVISION,
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
