"""P4, P6: orphans of a deleted pool. R17, P11: ControllerRevisions of sets and pools."""

from collections import Counter

import pytest

from tests.controlplane import documents
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace
from tests.controlplane.programs import ControllerProcess
from tests.controlplane.waits import eventually, reacts
from tests.faults.proxy.actions import HoldWatch
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import ThreadedProxy

pytestmark = pytest.mark.cluster

HALTED = documents.vm_template(runStrategy="Halted")
POOLS = "virtualmachinepools"


def test_p4_orphans_are_not_replaced_while_the_cache_still_shows_their_pool(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    pools = idle_namespace.pools
    pools.make(2, template=HALTED)
    pools.wait_until_updated(2)
    pools.settle()
    held = proxy.add(Rule(Match("watch", POOLS), HoldWatch(), times=None))
    pools.delete(cascade="orphan", wait=False)
    eventually(
        lambda: not any(map(documents.owner_uid, pools.vms().values())), within_s=20, what="the VMs have no owner"
    )
    reacts(lambda: pools.requests("get", resource=POOLS), what="the controller reads the pool before it creates")
    assert proxied.working
    proxy.remove(held)
    eventually(lambda: not pools.exists(), what="the garbage collector removes the pool")
    pools.settle()
    assert pools.created() == {"pool-0": 1, "pool-1": 1}


HASH = "vmherd.dev/template-hash"


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
        assert name == vmi["metadata"]["labels"][documents.REVISION] == f"pool-{made['metadata']['generation']}"
        assert revision["data"] == made["spec"]
    else:
        hashed = vmi["metadata"]["labels"][HASH]
        assert (name, revision["metadata"]["labels"]) == (f"herd-{hashed}", {HASH: hashed})
        assert revision["data"] == {"template": made["spec"]["template"]}
    assert revision["revision"] == made["metadata"]["generation"]
    assert revision["metadata"]["ownerReferences"] == [documents.reference_to(made, block=True)]
    assert owner.status()["currentRevision"] in name
    for replicas in (4, 0, 1):
        owner.scale(replicas)
        owner.wait_until_updated(replicas)
    assert written(owner) == {("create", 201): 1}
    owner.delete()
    eventually(lambda: not owner.revisions(), within_s=20, what="the revision goes with its owner")
    assert written(owner) == {("create", 201): 1}, "it is the garbage collector that deletes"


KUBEVIRTS, FOREIGN = "kubevirt.io/virtualMachineControllerFinalize", "test.vmherd.dev/hold"


def test_p6_orphans_stay_without_the_pools_finalizer_and_can_be_deleted(pools: PoolNamespace) -> None:
    # The garbage collector patches the revisions. The server then rewrites their data and compares the bytes.
    odd = {"z": [2.50, 1e22, 0.1, {}], "a": "<é & \u2028>", "none": {"list": []}}
    template = documents.vm_template(disks=("root",), alsoUnknown=odd)
    template["metadata"]["annotations"] = {"note": "<é & \u2028 \u0001\t\f>", "another": ""}
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["pool", "farm"]}]}
    pools.make(3, template=template, selector=selector, scaleInStrategy={"opportunistic": {}})
    before = pools.wait_for_ordinals(0, 1, 2)
    pools.vms.steps("pool-2", {"op": "add", "path": "/metadata/finalizers/-", "value": FOREIGN})
    pools.delete(cascade="orphan")
    assert not pools.exists()
    pools.settle()
    vms = pools.wait_for_ordinals(0, 1, 2)
    assert documents.uids(vms) == documents.uids(before)
    assert [vm["metadata"].get("ownerReferences") for vm in vms.values()] == [None] * 3
    assert {name: documents.finalizers_of(vm) for name, vm in vms.items()} == {
        "pool-0": [KUBEVIRTS],
        "pool-1": [KUBEVIRTS],
        "pool-2": [KUBEVIRTS, FOREIGN],
    }
    owners = {documents.owner_uid(volume) for volume in pools.data_volumes().values()}
    assert owners == set(documents.uids(vms).values()), "their disks are still their own"
    assert {each.resource for each in pools.requests("delete")} <= {"controllerrevisions"}
    assert pools.revisions() == {}, "no revision stays without an owner"
    pools.kubectl("delete", "vm", "pool-0", "pool-1", "--timeout=60s")
    pools.vms.set_finalizers("pool-2", KUBEVIRTS)
    pools.wait_for_ordinals(2)
