"""The scenarios of pools."""

from __future__ import annotations

from tests.faults.pool_steps import (
    OFFLINE,
    PROACTIVE,
    annotate,
    at,
    both,
    break_vm,
    change,
    change_template,
    claims,
    created,
    delete,
    delete_vm,
    delete_vmi,
    detached,
    disks,
    healed,
    memory_is,
    nothing_left,
    ordinals,
    orphans,
    paused,
    pool,
    relabel,
    remove_owner,
    running_with,
    vm_template,
    vms,
)
from tests.faults.scenarios import Scenario, Step
from tests.faults.states import MOST_DISRUPTIVE, RECREATE

NEW = "128M"
WITH_DISK = vm_template(disk="1Gi")
SHARED_DISK = vm_template(disk="1Gi", mode="ReadWriteMany")
DISKS = ("root-0", "root-1")
RECREATED = both(at(2), ordinals(0, 1), disks(*DISKS), claims("ReadWriteMany", *DISKS))
THREE = ("pool-0", "pool-1", "pool-2")
HEALING = {"startUpFailureThreshold": 1, "minFailingToStartDuration": "1h"}

SCALING = (
    Scenario(name="pool-create", steps=(Step(created(pool(3)), both(at(3), ordinals(0, 1, 2))),)),
    Scenario(
        name="pool-create-with-disks",
        steps=(
            Step(
                created(pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE)),
                both(at(2), ordinals(0, 1), disks("root-0", "root-1")),
            ),
        ),
    ),
    Scenario(
        name="pool-scale-up",
        given=(pool(1),),
        ready=at(1),
        steps=(Step(change(replicas=4), both(at(4), ordinals(0, 1, 2, 3))),),
    ),
    Scenario(
        name="pool-scale-down",
        given=(pool(4),),
        ready=at(4),
        steps=(Step(change(replicas=2), both(at(2), ordinals(0, 1))),),
    ),
    Scenario(
        name="pool-scale-down-with-disks",
        given=(pool(2, template=WITH_DISK),),
        ready=both(at(2), disks("root-0", "root-1")),
        steps=(Step(change(replicas=1), both(at(1), ordinals(0), disks("root-0"))),),
    ),
    Scenario(
        name="pool-scale-down-offline",
        given=(pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),),
        ready=both(at(2), disks("root-0", "root-1")),
        steps=(
            Step(change(replicas=1), both(at(1), ordinals(0), disks("root-0", "root-1", free=("root-1",)))),
            Step(change(replicas=2), both(at(2), ordinals(0, 1), disks("root-0", "root-1"))),
        ),
    ),
    Scenario(
        name="pool-scale-down-opportunistic",
        given=(pool(3, scaleInStrategy={"opportunistic": {}}),),
        ready=at(3),
        steps=(
            Step(change(replicas=2), at(3)),
            Step(delete_vm("pool-1"), both(at(2), ordinals(0, 2))),
            Step(delete_vm("pool-2"), both(at(2), ordinals(0, 1))),
        ),
    ),
    Scenario(
        name="pool-scale-down-opportunistic-offline",
        given=(pool(2, template=WITH_DISK, scaleInStrategy={"opportunistic": {"statePreservation": "Offline"}}),),
        ready=both(at(2), disks("root-0", "root-1")),
        steps=(
            Step(change(replicas=1), at(2)),
            Step(delete_vm("pool-0"), both(at(1), ordinals(1), disks("root-0", "root-1", free=("root-0",)))),
        ),
    ),
    Scenario(
        name="pool-scale-down-unmanaged",
        given=(pool(2, scaleInStrategy={"unmanaged": {}}),),
        ready=at(2),
        steps=(
            Step(change(replicas=1), at(2)),
            Step(delete_vm("pool-0"), both(at(1), ordinals(1))),
        ),
    ),
    Scenario(
        name="pool-vm-deleted-foreground",
        given=(pool(2, template=WITH_DISK),),
        ready=both(at(2), disks("root-0", "root-1")),
        steps=(Step(delete_vm("pool-0", "Foreground"), both(at(2), ordinals(0, 1), disks("root-0", "root-1"))),),
    ),
    Scenario(
        name="pool-change-preservation",
        given=(pool(2, template=WITH_DISK),),
        ready=both(at(2), disks("root-0", "root-1")),
        steps=(
            Step(change(scaleInStrategy=OFFLINE), at(2)),
            Step(change(replicas=1), both(at(1), ordinals(0), disks("root-0", "root-1", free=("root-1",)))),
        ),
    ),
)
UPDATES = (
    Scenario(
        name="pool-update-proactive",
        given=(pool(3),),
        ready=at(3),
        steps=(
            Step(change_template(vm_template(NEW)), both(at(3), memory_is(NEW, *THREE), running_with(NEW, *THREE))),
        ),
    ),
    Scenario(
        name="pool-update-labels",
        given=(pool(3),),
        ready=at(3),
        steps=(Step(change_template(vm_template(labels={"tier": "web"})), both(at(3), ordinals(0, 1, 2))),),
    ),
    Scenario(
        name="pool-update-disks",
        given=(pool(2, template=WITH_DISK),),
        ready=both(at(2), disks(*DISKS)),
        steps=(Step(change_template(SHARED_DISK), RECREATED),),
    ),
    Scenario(
        name="pool-update-disks-offline",
        given=(pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),),
        ready=both(at(2), disks(*DISKS)),
        steps=(
            Step(change_template(SHARED_DISK), both(at(2, updated=0), claims("ReadWriteOnce", *DISKS))),
            Step(annotate(MOST_DISRUPTIVE, RECREATE), RECREATED),
        ),
    ),
    *(
        Scenario(
            name=f"pool-update-disks-larger{suffix}",
            given=(pool(2, template=WITH_DISK, scaleInStrategy=strategy),),
            ready=both(at(2), disks(*DISKS)),
            steps=(Step(change_template(vm_template(disk="2Gi")), both(at(2), disks(*DISKS), claims("2Gi", *DISKS))),),
        )
        for suffix, strategy in (("", PROACTIVE), ("-offline", OFFLINE))
    ),
    Scenario(
        name="pool-update-opportunistic",
        given=(pool(2, updateStrategy={"opportunistic": {}}),),
        ready=at(2),
        steps=(
            Step(change_template(vm_template(NEW)), both(at(2, updated=0), memory_is(NEW, "pool-0", "pool-1"))),
            Step(delete_vmi("pool-0"), both(at(2, updated=1), running_with(NEW, "pool-0"))),
        ),
    ),
    Scenario(
        name="pool-update-unmanaged",
        given=(pool(2, updateStrategy={"unmanaged": {}}),),
        ready=at(2),
        steps=(
            Step(change_template(vm_template(NEW)), at(2, updated=0)),
            Step(change(replicas=3), both(at(3, updated=1), running_with(NEW, "pool-2"))),
        ),
    ),
    Scenario(
        name="pool-update-partition",
        given=(pool(3, annotations={"vmherd.dev/partition": "2"}),),
        ready=at(3),
        steps=(Step(change_template(vm_template(NEW)), both(at(3, updated=1), running_with(NEW, "pool-2"))),),
    ),
    Scenario(
        name="pool-undo",
        given=(pool(2),),
        ready=at(2),
        steps=(
            Step(change_template(vm_template(NEW)), both(at(2), running_with(NEW, "pool-0", "pool-1"))),
            Step(change_template(vm_template()), both(at(2), running_with("64M", "pool-0", "pool-1"))),
        ),
    ),
    Scenario(
        name="pool-undo-halfway",
        given=(pool(3),),
        ready=at(3),
        steps=(
            Step(change_template(vm_template(NEW)), memory_is(NEW, "pool-0")),
            Step(change_template(vm_template()), both(at(3), running_with("64M", *THREE))),
        ),
    ),
)
LIFE = (
    Scenario(
        name="pool-pause",
        given=(pool(2),),
        ready=at(2),
        steps=(
            Step(change(paused=True, replicas=3), paused()),
            Step(change(paused=False), both(at(3), paused(is_paused=False))),
        ),
    ),
    Scenario(
        name="pool-heal",
        given=(pool(3, autohealing=HEALING),),
        ready=at(3),
        steps=(Step(break_vm, both(at(3), ordinals(0, 1, 2), healed)),),
    ),
    Scenario(
        name="pool-heal-offline",
        given=(pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE, autohealing=HEALING),),
        ready=both(at(2), disks("root-0", "root-1")),
        steps=(Step(break_vm, both(at(2), ordinals(0, 1), healed, disks("root-0", "root-1"))),),
    ),
    Scenario(
        name="pool-detach",
        given=(pool(2),),
        ready=at(2),
        steps=(Step(remove_owner("pool-0"), both(at(2), vms(*THREE), detached("pool-0"))),),
    ),
    Scenario(
        name="pool-detach-offline",
        given=(pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),),
        ready=both(at(2), disks("root-0", "root-1")),
        steps=(Step(remove_owner("pool-0"), both(at(2), vms(*THREE), detached("pool-0"))),),
    ),
    Scenario(
        name="pool-release",
        given=(pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),),
        ready=both(at(2), disks("root-0", "root-1")),
        steps=(Step(relabel("pool-0"), both(at(2), vms(*THREE), detached("pool-0"))),),
    ),
    *(
        Scenario(
            name=f"pool-delete-{propagation.lower()}",
            given=(pool(3),),
            ready=at(3),
            steps=(Step(delete(propagation), orphans(3) if propagation == "Orphan" else nothing_left),),
        )
        for propagation in ("Foreground", "Background", "Orphan")
    ),
    *(
        Scenario(
            name=f"pool-delete-{propagation.lower()}-offline",
            given=(pool(2, template=WITH_DISK, scaleInStrategy=OFFLINE),),
            ready=both(at(2), disks("root-0", "root-1")),
            steps=(Step(delete(propagation), orphans(2) if propagation == "Orphan" else nothing_left),),
            # The garbage collector deletes the disks of a foreground deletion, unless the controller is faster.
            compared=propagation != "Foreground",
        )
        for propagation in ("Foreground", "Background", "Orphan")
    ),
)
POOL_SCENARIOS = (*SCALING, *UPDATES, *LIFE)
