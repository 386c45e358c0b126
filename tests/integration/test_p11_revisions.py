"""P11: the specs that VMs were made from are kept as ControllerRevisions, no more of them than are of use."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.herd import Place, eventually, herd, stays
from tests.integration.ranch import POOL_LABELS, Ranch, uids, vm_template
from tests.integration.renewal import revision_of, template_revision_of

pytestmark = pytest.mark.cluster

HALTED = {"runStrategy": "Halted"}
HISTORY = 5


def halted(**template: Any) -> dict[str, Any]:
    return vm_template(**HALTED, **template)


def edit(ranch: Ranch, replicas: int, *versions: int, **template: Any) -> list[str]:
    """One template after the other, each rolled out. The names of their revisions."""
    made = []
    for version in versions:
        pool = ranch.change_template(halted(memory=f"{version}Mi", **template))
        ranch.wait_until_updated(replicas)
        made.append(f"pool-{pool['metadata']['generation']}")
    return made


def revisions_made(ranch: Ranch) -> Counter[int]:
    """How often the controller asked for a revision, by the answer."""
    return Counter(each.code for each in ranch.requests("create") if each.resource == "controllerrevisions")


def pruned(ranch: Ranch, *left: str) -> None:
    eventually(lambda: ranch.revisions().keys() == set(left), what=f"{left} are left")
    stays(lambda: ranch.revisions().keys() == set(left), for_s=0.5, what="nothing else goes")


def test_p11_the_spec_that_vms_are_made_from_is_kept_and_belongs_to_the_pool(ranch: Ranch) -> None:
    pool = ranch.make_pool(2, template=halted(disks=("root",)), autohealing={}, maxUnavailable="50%")
    vms = ranch.wait_for_ordinals(0, 1, ready=False)
    ranch.wait_until_updated(2)
    (name,) = ranch.revisions()
    revision = ranch.revisions()[name]
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
    assert ranch.pool_status()["currentRevision"] == ranch.pool_status()["updateRevision"] == name
    ranch.kubectl("delete", "vmpool", "pool", "--timeout=10s")
    eventually(lambda: not ranch.revisions(), what="they go with the pool")


def test_p11_scaling_and_whatever_else_leaves_the_template_alone_makes_no_revision(ranch: Ranch) -> None:
    ranch.make_pool(1, template=halted())
    ranch.wait_until_updated(1)
    kept = uids(ranch.revisions())
    for replicas in (4, 2, 0, 3):
        ranch.scale(replicas)
        ranch.wait_until_updated(replicas)
    others = {
        "maxUnavailable": 1,
        "autohealing": {},
        "updateStrategy": {"opportunistic": {}},
        "scaleInStrategy": {"unmanaged": {}},
    }
    for field, value in others.items():
        ranch.change_pool({"spec": {field: value}})
    ranch.wait_until_updated(3)
    ranch.scale(5)
    ranch.wait_until_updated(5)
    assert uids(ranch.revisions()) == kept
    assert revisions_made(ranch) == {201: 1}
    assert {revision_of(vm) for vm in ranch.vms().values()} == kept.keys()


def test_p11_a_new_template_and_new_name_generation_are_kept_under_the_pools_generation(ranch: Ranch) -> None:
    ranch.make_pool(1, template=halted())
    ranch.wait_until_updated(1)
    ranch.scale(2)
    ranch.wait_until_updated(2)
    template = halted(labels={"tier": "web"})
    third = ranch.change_template(template)
    ranch.wait_until_updated(2)
    fourth = ranch.change_pool({"spec": {"nameGeneration": {"appendIndexToSecretRefs": True}}})
    ranch.wait_until_updated(2)
    assert [pool["metadata"]["generation"] for pool in (third, fourth)] == [3, 4]
    revisions = ranch.revisions()
    assert revisions.keys() == {"pool-1", "pool-3", "pool-4"}
    assert revisions["pool-3"]["data"] == third["spec"]
    assert revisions["pool-4"]["data"] == fourth["spec"]
    assert revisions["pool-1"]["data"]["replicas"] == 1, "what is kept is never written to again"
    assert {revision_of(vm) for vm in ranch.vms().values()} == {"pool-4"}


def test_p11_a_template_that_no_vm_was_made_from_is_not_kept(ranch: Ranch) -> None:
    ranch.make_pool(0, template=halted())
    for memory in ("1Gi", "2Gi"):
        ranch.change_template(halted(memory=memory))
        ranch.wait_until_updated(0)
    assert ranch.revisions() == {}
    assert ranch.pool_status()["updateRevision"] == "pool-3"
    ranch.scale(1)
    ranch.wait_until_updated(1)
    (name,) = ranch.revisions()
    assert {revision_of(vm) for vm in ranch.vms().values()} == {name}


def test_p11_going_back_to_an_earlier_template_uses_its_revision_again(ranch: Ranch) -> None:
    ranch.make_pool(2, template=halted(memory="1Mi"))
    ranch.wait_until_updated(2)
    edit(ranch, 2, 2)
    kept = uids(ranch.revisions())
    for version, name in ((1, "pool-1"), (2, "pool-2"), (1, "pool-1")):
        edit(ranch, 2, version)
        assert {(revision_of(vm), template_revision_of(vm)) for vm in ranch.vms().values()} == {(name, name)}
        assert ranch.pool_status()["updateRevision"] == name
    assert uids(ranch.revisions()) == kept
    assert revisions_made(ranch) == {201: 2}


def test_p11_those_that_nobody_is_made_from_are_pruned_but_the_newest_for_undo(ranch: Ranch) -> None:
    ranch.make_pool(2, template=halted(memory="1Mi"))
    ranch.wait_until_updated(2)
    names = ["pool-1", *edit(ranch, 2, *range(2, 8))]
    pruned(ranch, *names[-HISTORY - 1 :])
    names += edit(ranch, 2, 8, 9)
    pruned(ranch, *names[-HISTORY - 1 :])
    assert ranch.pool_status()["updateRevision"] == names[-1]


def test_p11_those_that_a_vm_or_a_running_vmi_is_made_from_stay(ranch: Ranch) -> None:
    ranch.make_pool(3, template=vm_template(), updateStrategy={"opportunistic": {}})
    ranch.wait_ready(3)
    for name in ("pool-0", "pool-2"):
        ranch.change_vm(name, {"spec": HALTED})
    eventually(lambda: ranch.vmis().keys() == {"pool-1"}, what="one of them runs")
    names = ["pool-1"]

    def edit_all(*versions: int) -> None:
        for version in versions:
            pool = ranch.change_template(vm_template(memory=f"{version}Mi"))
            names.append(f"pool-{pool['metadata']['generation']}")
            eventually(lambda: revision_of(ranch.vm("pool-2")) == names[-1], what="it is rolled out")

    edit_all(2)
    ranch.change_pool({"metadata": {"annotations": {"vmherd.dev/partition": "1"}}})
    edit_all(*range(3, 10))
    assert revision_of(ranch.vm("pool-0")) == "pool-2"
    assert revision_of(ranch.vmis()["pool-1"]) == "pool-1"
    pruned(ranch, *names[:2], *names[-HISTORY - 1 :])
    ranch.delete_vmi("pool-1")
    pruned(ranch, names[1], *names[-HISTORY - 1 :])
    ranch.change_pool({"metadata": {"annotations": {"vmherd.dev/partition": None}}})
    pruned(ranch, *names[-HISTORY - 1 :])


def test_p11_how_many_stay_for_undo_is_a_flag(vacant: Place, tmp_path: Path) -> None:
    ranch = Ranch(vacant.plane, vacant.namespace)
    with herd(vacant.plane, tmp_path, "--revision-history", "1"):
        ranch.make_pool(1, template=halted(memory="1Mi"))
        ranch.wait_until_updated(1)
        names = ["pool-1", *edit(ranch, 1, 2, 3, 4)]
        pruned(ranch, *names[-2:])


def test_p11_what_an_earlier_pool_of_the_name_left_behind_is_not_used_and_not_touched(ranch: Ranch) -> None:
    data = {"spec": "somebody else's"}
    metadata = {"name": "pool-1", "labels": POOL_LABELS}
    ranch.kubectl.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": metadata,
            "revision": 1,
            "data": data,
        }
    )
    ranch.make_pool(2, template=halted())
    ranch.wait_until_updated(2)
    (name,) = ranch.revisions().keys() - {"pool-1"}
    assert {revision_of(vm) for vm in ranch.vms().values()} == {name}
    assert ranch.revisions()["pool-1"]["data"] == data
