"""The scenarios of pools."""

from typing import Any

from controller.kubevirt.annotations import MOST_DISRUPTIVE, RECREATE
from tests.faults.resources import VMS
from tests.faults.samples.objects import Json
from tests.faults.samples.pool_steps import (
    OFFLINE,
    POOL,
    break_vm,
    change_template,
    claims,
    disks,
    healed,
    memory_is,
    ordinals,
    pool,
    running_with,
    vm_template,
)
from tests.faults.samples.scenarios import Condition, Step, scenario
from tests.faults.samples.steps import (
    both,
    deletions,
    draining,
    has_drained,
)

at, change = POOL.at, POOL.change
NEW = "128M"
WITH_DISK = vm_template(disk="1Gi")
SHARED_DISK = vm_template(disk="1Gi", mode="ReadWriteMany")
DISKS = ("root-0", "root-1")
RECREATED = both(at(2), ordinals(0, 1), disks(*DISKS), claims("ReadWriteMany", *DISKS))


def of(replicas: int, **more: Any) -> tuple[tuple[str, Json], Condition]:
    """A pool, and the condition that its VMs are ready."""
    return pool(replicas, **more), at(replicas)


def with_disks(**more: Any) -> tuple[tuple[str, Json], Condition]:
    """A pool of two VMs with disks, and the condition that the VMs and the disks are ready."""
    return pool(2, template=WITH_DISK, **more), both(at(2), disks(*DISKS))


THREE = ("pool-0", "pool-1", "pool-2")
DRAIN = {"vmherd.dev/drain-seconds": "900"}
HEALING = {"startUpFailureThreshold": 1, "minFailingToStartDuration": "1h"}

SCALING = (
    scenario("pool-scale-up", *of(1), Step(change(replicas=4), both(at(4), ordinals(0, 1, 2, 3)))),
    scenario(
        "pool-scale-down-drain",
        *of(3, annotations=DRAIN),
        Step(change(replicas=2), draining(VMS, 1)),
        Step(change(replicas=3), draining(VMS, 0)),
        Step(change(replicas=1), draining(VMS, 2)),
        Step(has_drained(VMS), both(at(1), ordinals(0))),
    ),
    scenario(
        "pool-scale-down-offline",
        *with_disks(scaleInStrategy=OFFLINE),
        Step(change(replicas=1), both(at(1), ordinals(0), disks(*DISKS, free=("root-1",)))),
        Step(change(replicas=2), both(at(2), ordinals(0, 1), disks(*DISKS))),
    ),
)
UPDATES = (
    scenario(
        "pool-update-proactive",
        *of(3),
        Step(change_template(vm_template(NEW)), both(at(3), memory_is(NEW, *THREE), running_with(NEW, *THREE))),
    ),
    scenario("pool-update-disks", *with_disks(), Step(change_template(SHARED_DISK), RECREATED)),
    scenario(
        "pool-update-disks-offline",
        *with_disks(scaleInStrategy=OFFLINE),
        Step(change_template(SHARED_DISK), both(at(2, updated=0), claims("ReadWriteOnce", *DISKS))),
        Step(POOL.annotate(MOST_DISRUPTIVE, RECREATE), RECREATED),
    ),
    scenario(
        "pool-update-disks-larger",
        *with_disks(scaleInStrategy=OFFLINE),
        Step(change_template(vm_template(disk="2Gi")), both(at(2), disks(*DISKS), claims("2Gi", *DISKS))),
    ),
    scenario(
        "pool-update-steps",
        *of(3, annotations={"vmherd.dev/partition": "67%,1:1s,0"}),
        Step(change_template(vm_template(NEW)), both(at(3), memory_is(NEW, *THREE), running_with(NEW, *THREE))),
    ),
)
LIFE = (
    scenario("pool-heal", *of(3, autohealing=HEALING), Step(break_vm, both(at(3), ordinals(0, 1, 2), healed))),
    *deletions(POOL, "pool-delete-{}", *of(3), 3),
)
POOL_SCENARIOS = (*SCALING, *UPDATES, *LIFE)
