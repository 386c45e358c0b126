"""The scenarios of pools."""

from tests.faults.judge.states import MOST_DISRUPTIVE, RECREATE
from tests.faults.matrix.pool_steps import (
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
    memory_is,
    ordinals,
    pool,
    relabel,
    remove_owner,
    replaced,
    running_with,
    vm_template,
    vms,
)
from tests.faults.matrix.scenarios import Step, scenario
from tests.faults.matrix.steps import both, created

at, change, delete = POOL.at, POOL.change, POOL.delete
NEW = "128M"
WITH_DISK = vm_template(disk="1Gi")
SHARED_DISK = vm_template(disk="1Gi", mode="ReadWriteMany")
DISKS = ("root-0", "root-1")
RECREATED = both(at(2), ordinals(0, 1), disks(*DISKS), claims("ReadWriteMany", *DISKS))
THREE = ("pool-0", "pool-1", "pool-2")
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
    scenario("pool-scale-up", pool(1), at(1), Step(change(replicas=4), both(at(4), ordinals(0, 1, 2, 3)))),
    scenario("pool-scale-down", pool(4), at(4), Step(change(replicas=2), both(at(2), ordinals(0, 1)))),
    scenario(
        "pool-scale-down-busy",
        pool(3),
        at(3),
        Step(busy("pool-2"), at(3)),
        Step(change(replicas=1), ordinals(2)),
        Step(change(replicas=0), ordinals(2)),
    ),
    scenario(
        "pool-scale-down-with-disks",
        pool(2, template=WITH_DISK),
        both(at(2), disks(*DISKS)),
        Step(change(replicas=1), both(at(1), ordinals(0), disks("root-0"))),
    ),
    scenario(
        "pool-scale-down-offline",
        pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),
        both(at(2), disks(*DISKS)),
        Step(change(replicas=1), both(at(1), ordinals(0), disks(*DISKS, free=("root-1",)))),
        Step(change(replicas=2), both(at(2), ordinals(0, 1), disks(*DISKS))),
    ),
    scenario(
        "pool-scale-down-opportunistic",
        pool(3, scaleInStrategy={"opportunistic": {}}),
        at(3),
        Step(change(replicas=2), at(3)),
        Step(delete_vm("pool-1"), both(at(2), ordinals(0, 2))),
        Step(delete_vm("pool-2"), both(at(2), ordinals(0, 1))),
    ),
    scenario(
        "pool-scale-down-opportunistic-offline",
        pool(2, template=WITH_DISK, scaleInStrategy={"opportunistic": {"statePreservation": "Offline"}}),
        both(at(2), disks(*DISKS)),
        Step(change(replicas=1), at(2)),
        Step(delete_vm("pool-0"), both(at(1), ordinals(1), disks(*DISKS, free=("root-0",)))),
    ),
    scenario(
        "pool-scale-down-unmanaged",
        pool(2, scaleInStrategy={"unmanaged": {}}),
        at(2),
        Step(change(replicas=1), at(2)),
        Step(delete_vm("pool-0"), both(at(1), ordinals(1))),
    ),
    scenario(
        "pool-vm-deleted-foreground",
        pool(2, template=WITH_DISK),
        both(at(2), disks(*DISKS)),
        Step(delete_vm("pool-0", "Foreground"), both(at(2), ordinals(0, 1), disks(*DISKS))),
    ),
    scenario(
        "pool-change-preservation",
        pool(2, template=WITH_DISK),
        both(at(2), disks(*DISKS)),
        Step(change(scaleInStrategy=OFFLINE), at(2)),
        Step(change(replicas=1), both(at(1), ordinals(0), disks(*DISKS, free=("root-1",)))),
    ),
)
UPDATES = (
    scenario(
        "pool-update-proactive",
        pool(3),
        at(3),
        Step(change_template(vm_template(NEW)), both(at(3), memory_is(NEW, *THREE), running_with(NEW, *THREE))),
    ),
    scenario(
        "pool-update-labels",
        pool(3),
        at(3),
        Step(change_template(vm_template(labels={"tier": "web"})), both(at(3), ordinals(0, 1, 2))),
    ),
    scenario(
        "pool-update-disks",
        pool(2, template=WITH_DISK),
        both(at(2), disks(*DISKS)),
        Step(change_template(SHARED_DISK), RECREATED),
    ),
    scenario(
        "pool-update-disks-offline",
        pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),
        both(at(2), disks(*DISKS)),
        Step(change_template(SHARED_DISK), both(at(2, updated=0), claims("ReadWriteOnce", *DISKS))),
        Step(POOL.annotate(MOST_DISRUPTIVE, RECREATE), RECREATED),
    ),
    *(
        scenario(
            f"pool-update-disks-larger{suffix}",
            pool(2, template=WITH_DISK, scaleInStrategy=strategy),
            both(at(2), disks(*DISKS)),
            Step(change_template(vm_template(disk="2Gi")), both(at(2), disks(*DISKS), claims("2Gi", *DISKS))),
        )
        for suffix, strategy in (("", PROACTIVE), ("-offline", OFFLINE))
    ),
    scenario(
        "pool-update-opportunistic",
        pool(2, updateStrategy={"opportunistic": {}}),
        at(2),
        Step(change_template(vm_template(NEW)), both(at(2, updated=0), memory_is(NEW, "pool-0", "pool-1"))),
        Step(delete_vmi("pool-0"), both(at(2, updated=1), running_with(NEW, "pool-0"))),
    ),
    scenario(
        "pool-update-unmanaged",
        pool(2, updateStrategy={"unmanaged": {}}),
        at(2),
        Step(change_template(vm_template(NEW)), at(2, updated=0)),
        Step(change(replicas=3), both(at(3, updated=1), running_with(NEW, "pool-2"))),
    ),
    scenario(
        "pool-update-partition",
        pool(3, annotations={"vmherd.dev/partition": "2"}),
        at(3),
        Step(change_template(vm_template(NEW)), both(at(3, updated=1), running_with(NEW, "pool-2"))),
    ),
    scenario(
        "pool-undo",
        pool(2),
        at(2),
        Step(change_template(vm_template(NEW)), both(at(2), running_with(NEW, "pool-0", "pool-1"))),
        Step(change_template(vm_template()), both(at(2), running_with("64M", "pool-0", "pool-1"))),
    ),
    scenario(
        "pool-undo-halfway",
        pool(3),
        at(3),
        Step(change_template(vm_template(NEW)), memory_is(NEW, "pool-0")),
        Step(change_template(vm_template()), both(at(3), running_with("64M", *THREE))),
    ),
)
LIFE = (
    scenario(
        "pool-pause",
        pool(2),
        at(2),
        Step(change(paused=True, replicas=3), POOL.paused()),
        Step(change(paused=False), both(at(3), POOL.paused(is_paused=False))),
    ),
    scenario("pool-heal", pool(3, autohealing=HEALING), at(3), Step(break_vm, both(at(3), ordinals(0, 1, 2), healed))),
    scenario(
        "pool-replace-finished",
        pool(2, template=vm_template(disk="1Gi", strategy="Once"), annotations=ONE_SHOT),
        both(at(2), disks(*DISKS)),
        Step(finish_vm, both(at(2), ordinals(0, 1), disks(*DISKS), replaced)),
    ),
    scenario(
        "pool-scale-down-finished",
        pool(3, template=vm_template(strategy="Once"), annotations=ONE_SHOT),
        at(3),
        Step(change(replicas=2), at(3)),
        Step(finish_vm, ordinals(0, 2)),
    ),
    scenario(
        "pool-heal-offline",
        pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE, autohealing=HEALING),
        both(at(2), disks(*DISKS)),
        Step(break_vm, both(at(2), ordinals(0, 1), healed, disks(*DISKS))),
    ),
    scenario("pool-detach", pool(2), at(2), Step(remove_owner("pool-0"), both(at(2), vms(*THREE), detached("pool-0")))),
    scenario(
        "pool-detach-offline",
        pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),
        both(at(2), disks(*DISKS)),
        Step(remove_owner("pool-0"), both(at(2), vms(*THREE), detached("pool-0"))),
    ),
    scenario(
        "pool-release",
        pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),
        both(at(2), disks(*DISKS)),
        Step(relabel("pool-0"), both(at(2), vms(*THREE), detached("pool-0"))),
    ),
    *(
        scenario(
            f"pool-delete-{propagation.lower()}",
            pool(3),
            at(3),
            Step(delete(propagation), POOL.gone(3 if propagation == "Orphan" else 0)),
        )
        for propagation in ("Foreground", "Background", "Orphan")
    ),
    *(
        scenario(
            f"pool-delete-{propagation.lower()}-offline",
            pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),
            both(at(2), disks(*DISKS)),
            Step(delete(propagation), POOL.gone(2 if propagation == "Orphan" else 0)),
            # The garbage collector deletes the disks of a foreground deletion, unless the controller is faster.
            compared=propagation != "Foreground",
        )
        for propagation in ("Foreground", "Background", "Orphan")
    ),
)
POOL_SCENARIOS = (*SCALING, *UPDATES, *LIFE)
