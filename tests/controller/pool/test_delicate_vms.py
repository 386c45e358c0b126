"""P8, P15: a VM is neither deleted nor healed while KubeVirt works on the VM or its disks."""

from controller.kubevirt.annotations import DELETION_COST, PROTECT, REMOVE
from controller.kubevirt.resources import VMS
from controller.pool.plan import plan
from controller.runtime.actions import Delete
from tests.pool_builders import pool, snapshot, vmi, vms
from tests.pool_healing import FAILING, announce, announced_for, heal, healed, healing_pool

DESCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def deleted(todo) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMS]


def test_p15_a_failing_vm_is_not_healed_during_a_snapshot_and_an_event_has_the_reason():
    owner = healing_pool()
    failing, others = vms(owner, 0, snapshot="monday", **FAILING), vms(owner, 1, 2)
    todo = heal(owner, *failing, *others)
    assert todo.actions == ()
    assert todo.held == "healing: 1 virtual machine waits: snapshot monday is in progress"
    [notice] = todo.notices
    assert notice.reason == "HealingHeld"
    assert notice.message == "web-0 is not replaced: snapshot monday is in progress"
    [same] = heal(owner, *failing, *others).notices
    [other] = heal(owner, *vms(owner, 0, snapshot="tuesday", **FAILING), *others).notices
    assert notice.once == same.once != other.once


def test_p15_a_snapshot_after_the_announcement_delays_the_healing():
    owner = healing_pool()
    owner = announced_for(owner, *vms(owner, 0))
    others = vms(owner, 1, 2)
    assert announce(owner, *vms(owner, 0, snapshot="monday", **FAILING), *others).actions == ()
    assert healed(announce(owner, *vms(owner, 0, **FAILING), *others)) == ["web-0"]


def test_p15_a_delicate_vm_does_not_delay_the_healing_of_other_vms():
    owner = healing_pool(maxUnavailable=1)
    machines = (*vms(owner, 0, snapshot="monday", **FAILING), *vms(owner, 1, **FAILING), *vms(owner, *range(2, 10)))
    assert healed(heal(owner, *machines)) == ["web-1"]


def test_p8_a_vm_with_a_snapshot_in_progress_comes_last_in_a_scale_in():
    owner = pool(replicas=1, scaleInStrategy=DESCENDING)
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), *vms(owner, 2, snapshot="monday"))))
    assert (deleted(todo), todo.held, todo.notices) == (["web-1", "web-0"], "", ())


def test_p8_a_low_cost_does_not_change_that_a_delicate_vm_comes_last():
    owner = pool(replicas=2, scaleInStrategy=DESCENDING)
    machines = (*vms(owner, 0, 1), *vms(owner, 2, snapshot="monday", annotations={DELETION_COST: "-100"}))
    assert deleted(plan(snapshot(owner, machines))) == ["web-1"]


def test_p8_a_scale_in_waits_for_a_marked_vm_with_a_snapshot_in_progress_and_deletes_no_other_vm():
    owner = pool(replicas=2, scaleInStrategy=DESCENDING)
    machines = (*vms(owner, 1, 2), *vms(owner, 0, snapshot="monday", annotations={REMOVE: "true"}))
    todo = plan(snapshot(owner, machines))
    assert (deleted(todo), [notice.reason for notice in todo.notices]) == ([], ["ScaleInHeld"])


def test_p8_a_scale_in_waits_for_a_delicate_vm_if_no_other_vm_can_be_deleted():
    owner = pool(replicas=1, scaleInStrategy=DESCENDING)
    machines = (*vms(owner, 0, annotations={PROTECT: "true"}), *vms(owner, 1), *vms(owner, 2, snapshot="monday"))
    todo = plan(snapshot(owner, machines))
    assert deleted(todo) == ["web-1"]
    assert todo.held == "1 surplus virtual machine is not deleted now, because snapshot monday is in progress"
    [notice] = todo.notices
    assert (notice.reason, notice.message) == (
        "ScaleInHeld",
        "web-2 is surplus, but is not deleted now: snapshot monday is in progress",
    )
    later = plan(snapshot(owner, (machines[0], *vms(owner, 2))))
    assert (deleted(later), later.held) == (["web-2"], "")


def test_p8_a_vm_that_migrates_is_not_deleted_by_a_scale_in():
    owner = pool(replicas=0)
    [machine] = vms(owner, 0)
    todo = plan(snapshot(owner, [machine], vmis=[vmi(machine, migrating=True)]))
    assert (deleted(todo), [each.reason for each in todo.notices]) == ([], ["ScaleInHeld"])
    assert deleted(plan(snapshot(owner, [machine]))) == ["web-0"]
