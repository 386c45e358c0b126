"""P2, P3, P4: members of a pool, VMs that leave the pool, and the names of their replacements."""

import pytest

from tests.controlplane.documents import (
    finalizers_of,
    owner_uid,
    vm_template,
)
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.programs import ControllerProcess
from tests.controlplane.waits import eventually, reacts
from tests.faults.proxy.actions import HoldWatch
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import ThreadedProxy

pytestmark = pytest.mark.cluster

NOT_OURS = "kubevirt.io/virtualMachineControllerFinalize"
KEEPS_DISKS = {"proactive": {"statePreservation": "Offline"}}
HALTED = vm_template(runStrategy="Halted")
POOLS = "virtualmachinepools"


def test_p2_a_vm_that_left_its_pool_can_be_deleted_after_the_pool(pools: PoolNamespace) -> None:
    pools.make(1, scaleInStrategy=KEEPS_DISKS)
    pools.wait_for_ordinals(0)
    pools.vms.change("pool-0", {"metadata": {"ownerReferences": None}})
    pools.delete()
    pools.wait_for_ordinals(0)
    assert finalizers_of(pools.vms.get("pool-0")) == [NOT_OURS]
    pools.kubectl("delete", "vm", "pool-0", "--timeout=60s")


def test_p4_orphans_are_not_replaced_while_the_cache_still_shows_their_pool(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    pools = idle_namespace.pools
    pools.make(2, template=HALTED)
    pools.wait_until_updated(2)
    held = proxy.add(Rule(Match("watch", POOLS), HoldWatch(), times=None))
    pools.delete(cascade="orphan", wait=False)
    eventually(lambda: not any(map(owner_uid, pools.vms().values())), within_s=20, what="the VMs have no owner")
    reacts(lambda: pools.requests("get", resource=POOLS), what="the controller reads the pool before it creates")
    assert proxied.working
    proxy.remove(held)
    reacts(lambda: not pools.exists(), what="the pool is gone")
    pools.settle()
    assert pools.created() == {"pool-0": 1, "pool-1": 1}


def test_no_request_is_sent_for_a_deleted_pool(pools: PoolNamespace, pool_controller: ControllerProcess) -> None:
    names = ("first", "second", "third")
    for name in names:
        pools.make(2, name=name, template=HALTED)
    for name in names:
        pools.wait_until_updated(2, name=name)
    pools.settle()
    position = pools.plane.audit_position()
    pools.delete(*names)
    eventually(lambda: not pools.vms(), within_s=20, what="the VMs go")
    pools.settle()
    assert [record for record in pools.requests(since=position, resource=POOLS) if record.code >= 400] == []
    assert not pool_controller.lines(level="error", namespace=pools.namespace)
