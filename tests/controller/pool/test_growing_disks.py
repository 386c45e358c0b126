"""P21: a disk that only becomes larger is expanded, and neither the VM nor the disk is deleted."""

from copy import deepcopy

import pytest

from controller.kubevirt.resources import PVCS
from controller.pool.plan import plan
from controller.pool.spec.template import DiskChange, disk_change, larger_disks
from controller.runtime.actions import Delete, ExpandClaim, ThreeWayMerge
from tests.fakes.requests import Request
from tests.pool_builders import intent_of, pool, revision, snapshot, vm, vm_spec, vms
from tests.pool_simulation import PoolSimulation

SMALL, LARGE = vm_spec(disks=["data"]), vm_spec(disks=["data"], size="2Gi")


def template(**fields):
    return intent_of(pool(spec=vm_spec(**{"disks": ["a", "b"], **fields}))).template


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"size": "1024Mi"}, DiskChange.NONE),
        ({"size": "1.5Gi"}, DiskChange.LARGER),
        ({"size": "500M"}, DiskChange.NONE),
        ({"size": "2Gi", "storage_class": "slow"}, DiskChange.OTHER),
        ({"disks": ["a"]}, DiskChange.NAMES),
        ({"disks": ["a", "b", "c"], "size": "2Gi"}, DiskChange.NAMES),
        ({"disks": ["a", "c"], "size": "1Mi"}, DiskChange.NAMES),
    ],
)
def test_p21_the_change_of_the_disks_between_two_templates(fields, change):
    assert disk_change(template(), template(**fields)) is change


def test_p21_a_smaller_disk_beside_a_larger_one_is_no_difference():
    spec = deepcopy(vm_spec(disks=["a"], size="2Gi"))
    spec["dataVolumeTemplates"] += vm_spec(disks=["b"])["dataVolumeTemplates"]
    spec["dataVolumeTemplates"][1]["spec"]["storage"]["resources"]["requests"]["storage"] = "1Mi"
    mixed = intent_of(pool(spec=spec)).template
    assert disk_change(template(), mixed) is DiskChange.LARGER
    assert larger_disks(template(), mixed) == {"a": "2Gi"}


@pytest.mark.parametrize("strategy", [None, {"proactive": {"statePreservation": "Offline"}}])
@pytest.mark.parametrize("ready", [True, False])
def test_p21_the_claim_is_expanded_before_the_vm_gets_the_new_template(strategy, ready):
    before = pool(replicas=1, spec=SMALL, scaleInStrategy=strategy)
    owner = pool(replicas=1, generation=2, spec=LARGE, scaleInStrategy=strategy)
    machine = vm("web-0", owner=owner, ready=ready, spec=vm_spec(disks=["data-0"]))
    seen = snapshot(owner, [machine], revisions=[revision(before, number=1), revision(owner, number=2)])
    expansion, merge = plan(seen).actions
    assert isinstance(expansion, ExpandClaim)
    assert (expansion.resource, expansion.key.name, expansion.size) == (PVCS, "data-0", "2Gi")
    assert isinstance(merge, ThreeWayMerge)


def test_p21_a_growing_disk_takes_no_turn():
    before, owner = pool(replicas=3, spec=SMALL), pool(replicas=3, generation=2, spec=LARGE, maxUnavailable=1)
    machines = [*vms(owner, 0, ready=False), *vms(owner, 1, 2)]
    seen = snapshot(owner, machines, revisions=[revision(before, number=1), revision(owner, number=2)])
    assert sum(isinstance(each, ExpandClaim) for each in plan(seen).actions) == 3


def grow(simulation: PoolSimulation) -> None:
    simulation.change_template(LARGE)


def at_rest() -> PoolSimulation:
    simulation = PoolSimulation(pool(replicas=3, finalizers=(), spec=SMALL, maxUnavailable=1))
    simulation.come_to_rest()
    for name in simulation.claims:
        request = {"resources": {"requests": {"storage": "1Gi"}}}
        simulation.server.change(PVCS, simulation.key(name), {"spec": request})
    return simulation


def test_p21_a_refused_expansion_holds_the_update_of_this_vm_and_deletes_nothing():
    simulation = at_rest()

    def refuses(request: Request) -> bool:
        return request.verb == "patch" and request.resource is PVCS and request.key.name == "data-1"

    simulation.refuses = refuses
    simulation.actions.clear()
    grow(simulation)
    simulation.run_passes(60, 15)
    assert [each for each in simulation.actions if isinstance(each, Delete)] == []
    status = simulation.pool["status"]
    assert status["updatedReplicas"] == 2
    assert {each["type"] for each in status["conditions"]} == {"ReplicaFailure", "Stalled"}
    simulation.refuses = lambda request: False
    simulation.come_to_rest()
    assert simulation.pool["status"]["updatedReplicas"] == 3
