"""The scenarios of pools."""

from typing import Any

from msgspec.structs import replace

from controller.kubevirt.annotations import MOST_DISRUPTIVE, RECREATE
from tests.faults.resources import VMS
from tests.faults.samples.objects import Json
from tests.faults.samples.pool_steps import (
    OFFLINE,
    POOL,
    PROACTIVE,
    break_vm,
    busy,
    change_template,
    claims,
    delete_vm,
    delete_vmi,
    detached,
    disks,
    finish_vm,
    healed,
    is_regular,
    lose,
    mark_instances,
    memory_is,
    never_restarted,
    ordinals,
    placed,
    pool,
    relabel,
    remove_owner,
    replaced,
    running_with,
    vm_template,
    vms,
)
from tests.faults.samples.scenarios import Condition, Step, scenario
from tests.faults.samples.steps import (
    BUDGET,
    READY_NOTE,
    RETURN_NOTE,
    RETURNS,
    both,
    created,
    deletions,
    draining,
    has_drained,
    keeps_budget,
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
ONE_SHOT = {"vmherd.dev/replace-finished": "true", "vmherd.dev/scale-in": "finished"}
HEALING = {"startUpFailureThreshold": 1, "minFailingToStartDuration": "1h"}

SCALING = (
    scenario("pool-create", None, None, Step(created(pool(3)), both(at(3), ordinals(0, 1, 2)))),
    scenario(
        "pool-create-with-disks",
        None,
        None,
        Step(created(pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE)), both(at(2), ordinals(0, 1), disks(*DISKS))),
    ),
    scenario("pool-scale-up", *of(1), Step(change(replicas=4), both(at(4), ordinals(0, 1, 2, 3)))),
    scenario("pool-scale-down", *of(4), Step(change(replicas=2), both(at(2), ordinals(0, 1)))),
    scenario(
        "pool-scale-down-busy",
        *of(3),
        Step(busy("pool-2"), at(3)),
        Step(change(replicas=1), ordinals(2)),
        Step(change(replicas=0), ordinals(2)),
    ),
    scenario(
        "pool-scale-down-drain",
        *of(3, annotations=DRAIN),
        Step(change(replicas=2), draining(VMS, 1)),
        Step(change(replicas=3), draining(VMS, 0)),
        Step(change(replicas=1), draining(VMS, 2)),
        Step(has_drained(VMS), both(at(1), ordinals(0))),
    ),
    keeps_budget(POOL, "pool-scale-budget", pool(2, annotations=BUDGET)),
    scenario(
        "pool-substitute-lost",
        *of(3, annotations={"vmherd.dev/substitute-lost-after-seconds": "1"}),
        Step(lose("pool-1"), ordinals(0, 1, 2, 3)),
        Step(change(replicas=2), ordinals(0, 1, 2)),
        Step(change(replicas=3), ordinals(0, 1, 2, 3)),
        Step(remove_owner("pool-1"), both(at(3), detached("pool-1"), is_regular("pool-3"))),
        compared=False,  # the status names the node, which depends on the UID of the VMI
    ),
    scenario(
        "pool-scale-down-with-disks", *with_disks(), Step(change(replicas=1), both(at(1), ordinals(0), disks("root-0")))
    ),
    scenario(
        "pool-scale-down-offline",
        *with_disks(scaleInStrategy=OFFLINE),
        Step(change(replicas=1), both(at(1), ordinals(0), disks(*DISKS, free=("root-1",)))),
        Step(change(replicas=2), both(at(2), ordinals(0, 1), disks(*DISKS))),
    ),
    scenario(
        "pool-scale-down-opportunistic",
        *of(3, scaleInStrategy={"opportunistic": {}}),
        Step(change(replicas=2), at(3)),
        Step(delete_vm("pool-1"), both(at(2), ordinals(0, 2))),
        Step(delete_vm("pool-2"), both(at(2), ordinals(0, 1))),
    ),
    scenario(
        "pool-scale-down-opportunistic-offline",
        *with_disks(scaleInStrategy={"opportunistic": {"statePreservation": "Offline"}}),
        Step(change(replicas=1), at(2)),
        Step(delete_vm("pool-0"), both(at(1), ordinals(1), disks(*DISKS, free=("root-0",)))),
    ),
    scenario(
        "pool-scale-down-unmanaged",
        *of(2, scaleInStrategy={"unmanaged": {}}),
        Step(change(replicas=1), at(2)),
        Step(delete_vm("pool-0"), both(at(1), ordinals(1))),
    ),
    scenario(
        "pool-vm-deleted-foreground",
        *with_disks(),
        Step(delete_vm("pool-0", "Foreground"), both(at(2), ordinals(0, 1), disks(*DISKS))),
    ),
    scenario(
        "pool-change-preservation",
        *with_disks(),
        Step(change(scaleInStrategy=OFFLINE), at(2)),
        Step(change(replicas=1), both(at(1), ordinals(0), disks(*DISKS, free=("root-1",)))),
    ),
)
UPDATES = (
    scenario(
        "pool-update-proactive",
        *of(3),
        Step(change_template(vm_template(NEW)), both(at(3), memory_is(NEW, *THREE), running_with(NEW, *THREE))),
    ),
    scenario(
        "pool-update-labels",
        *of(3),
        Step(change_template(vm_template(labels={"tier": "web"})), both(at(3), ordinals(0, 1, 2))),
    ),
    scenario(
        "pool-update-live",
        *of(3),
        Step(mark_instances, at(3)),
        Step(change_template(placed(vm_template())), both(at(3), never_restarted)),
    ),
    scenario("pool-update-disks", *with_disks(), Step(change_template(SHARED_DISK), RECREATED)),
    scenario(
        "pool-update-disks-offline",
        *with_disks(scaleInStrategy=OFFLINE),
        Step(change_template(SHARED_DISK), both(at(2, updated=0), claims("ReadWriteOnce", *DISKS))),
        Step(POOL.annotate(MOST_DISRUPTIVE, RECREATE), RECREATED),
    ),
    *(
        scenario(
            f"pool-update-disks-larger{suffix}",
            *with_disks(scaleInStrategy=strategy),
            Step(change_template(vm_template(disk="2Gi")), both(at(2), disks(*DISKS), claims("2Gi", *DISKS))),
        )
        for suffix, strategy in (("", PROACTIVE), ("-offline", OFFLINE))
    ),
    scenario(
        "pool-update-opportunistic",
        *of(2, updateStrategy={"opportunistic": {}}),
        Step(change_template(vm_template(NEW)), both(at(2, updated=0), memory_is(NEW, "pool-0", "pool-1"))),
        Step(delete_vmi("pool-0"), both(at(2, updated=1), running_with(NEW, "pool-0"))),
    ),
    scenario(
        "pool-update-unmanaged",
        *of(2, updateStrategy={"unmanaged": {}}),
        Step(change_template(vm_template(NEW)), at(2, updated=0)),
        Step(change(replicas=3), both(at(3, updated=1), running_with(NEW, "pool-2"))),
    ),
    scenario(
        "pool-update-partition",
        *of(3, annotations={"vmherd.dev/partition": "2"}),
        Step(change_template(vm_template(NEW)), both(at(3, updated=1), running_with(NEW, "pool-2"))),
    ),
    scenario(
        "pool-update-steps",
        *of(3, annotations={"vmherd.dev/partition": "67%,1:1s,0"}),
        Step(change_template(vm_template(NEW)), both(at(3), memory_is(NEW, *THREE), running_with(NEW, *THREE))),
    ),
    scenario(
        "pool-rollback",
        pool(3, annotations=RETURNS),
        both(at(3), POOL.noted(READY_NOTE)),
        Step(
            change_template(vm_template(NEW, behavior="never-ready")),
            both(at(3, updated=0), POOL.noted(RETURN_NOTE), memory_is("64M", *THREE), running_with("64M", *THREE)),
        ),
    ),
    scenario(
        "pool-undo",
        *of(2),
        Step(change_template(vm_template(NEW)), both(at(2), running_with(NEW, "pool-0", "pool-1"))),
        Step(change_template(vm_template()), both(at(2), running_with("64M", "pool-0", "pool-1"))),
    ),
    scenario(
        "pool-undo-halfway",
        *of(3),
        Step(change_template(vm_template(NEW)), memory_is(NEW, "pool-0")),
        Step(change_template(vm_template()), both(at(3), running_with("64M", *THREE))),
        counted=False,
    ),
)
LIFE = (
    scenario(
        "pool-pause",
        *of(2),
        Step(change(paused=True, replicas=3), POOL.paused()),
        Step(change(paused=False), both(at(3), POOL.paused(is_paused=False))),
    ),
    scenario("pool-heal", *of(3, autohealing=HEALING), Step(break_vm, both(at(3), ordinals(0, 1, 2), healed))),
    scenario(
        "pool-replace-finished",
        pool(2, template=vm_template(disk="1Gi", strategy="Once"), annotations=ONE_SHOT),
        both(at(2), disks(*DISKS)),
        Step(finish_vm, both(at(2), ordinals(0, 1), disks(*DISKS), replaced)),
    ),
    scenario(
        "pool-scale-down-finished",
        *of(3, template=vm_template(strategy="Once"), annotations=ONE_SHOT),
        Step(change(replicas=2), at(3)),
        Step(finish_vm, ordinals(0, 2)),
    ),
    scenario(
        "pool-heal-offline",
        *with_disks(scaleInStrategy=OFFLINE, autohealing=HEALING),
        Step(break_vm, both(at(2), ordinals(0, 1), healed, disks(*DISKS))),
    ),
    scenario("pool-detach", *of(2), Step(remove_owner("pool-0"), both(at(2), vms(*THREE), detached("pool-0")))),
    scenario(
        "pool-detach-offline",
        *with_disks(scaleInStrategy=OFFLINE),
        Step(remove_owner("pool-0"), both(at(2), vms(*THREE), detached("pool-0"))),
    ),
    scenario(
        "pool-release",
        *with_disks(scaleInStrategy=OFFLINE),
        Step(relabel("pool-0"), both(at(2), vms(*THREE), detached("pool-0"))),
    ),
    *deletions(POOL, "pool-delete-{}", *of(3), 3),
    *(
        # The garbage collector deletes the disks of a foreground deletion, unless the controller is faster.
        replace(each, compared=not (races := each.name == "pool-delete-foreground-offline"), counted=not races)
        for each in deletions(POOL, "pool-delete-{}-offline", *with_disks(scaleInStrategy=OFFLINE), 2)
    ),
)
POOL_SCENARIOS = (*SCALING, *UPDATES, *LIFE)
