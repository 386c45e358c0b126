"""P15, P8: the limits of healing, and VMs that are not touched while KubeVirt works on them or their disks."""

import pytest

from controller.kubevirt.annotations import MAX_UNHEALTHY, REMOVE
from controller.pool.plan import plan
from controller.runtime.actions import Delete
from controller.runtime.waits import Why
from tests.plans import reasons
from tests.pool_builders import pool, snapshot, vm_spec, vms
from tests.pool_scenes import DESCENDING, FAILING, STUCK, deleted_vms, entry, heal, healed, healing_pool


def test_p15_no_more_than_max_unavailable_are_healed_at_once():
    owner = healing_pool(maxUnavailable=2)
    todo = heal(owner, *vms(owner, 6, 5, 1, **FAILING), *vms(owner, 0, 2, 3, 4, 7, 8, 9))
    assert healed(todo) == ["web-1", "web-5"]
    assert todo.held == "healing: 1 virtual machine waits until others are available"


ONE = {"maxUnavailable": 1}
FIRST = {
    "the VM that fails for the longest time": (ONE, [{**STUCK, "ready_for_s": each} for each in (400, 500)], ["web-1"]),
    "a VM that was never healed": (ONE | {"healed": {0: entry(count=2, seconds=600)}}, [FAILING, FAILING], ["web-1"]),
    "at most burst": ({}, [FAILING] * 3, ["web-0", "web-1"]),
}


@pytest.mark.parametrize(("fields", "failing", "expected"), FIRST.values(), ids=FIRST)
def test_p15_which_vms_are_healed_first(fields, failing, expected):
    owner = healing_pool(**fields)
    machines = [each for ordinal, changes in enumerate(failing) for each in vms(owner, ordinal, **changes)]
    assert healed(heal(owner, *machines, *vms(owner, *range(len(failing), 10)), burst=2)) == expected


RECOVERING = {
    "terminating": {"uid": "healed", "ready": False, "foreground": True},
    "starting": {"ready": False, "printable": "Starting"},
    "without a status": {"ready": None, "printable": None},
}
NOT_RECOVERING = {
    "available again": {},
    "never deleted": {"uid": "healed", "ready": False, "printable": "Starting"},
    "recreated, and deleted by its user": {"ready": False, "printable": "Starting", "deleting": True},
    "recreated, and stopped by its user": {"ready": False, "spec": vm_spec(run_strategy="Halted")},
}
HEALED_0 = {"healed": {0: entry("healed", seconds=60)}}
BESIDE_HEALING = {
    **{name: (HEALED_0, changes, ["web-1"]) for name, changes in NOT_RECOVERING.items()},
    **{name: (HEALED_0, changes, []) for name, changes in RECOVERING.items()},
    # Its disks were deleted slowly.
    "recreated late": ({"healed": {0: entry("healed", seconds=900)}}, {**RECOVERING["starting"], "age_s": 60}, []),
    "not recreated": ({"healed": {0: entry()}}, None, []),
    "scaled in": ({"replicas": 9, "healed": {9: entry()}}, {}, ["web-1"]),
    # A failing VM is already unavailable, so its healing makes no other VM unavailable.
    "restarted by a rollout": ({}, {"ready": False, "printable": "Starting"}, ["web-1"]),
}


@pytest.mark.parametrize(("fields", "changes", "expected"), BESIDE_HEALING.values(), ids=BESIDE_HEALING)
def test_p14_p15_which_other_vms_count_towards_the_limit(fields, changes, expected):
    owner = healing_pool(maxUnavailable=1, **fields)
    first = () if changes is None else vms(owner, 0, **changes)
    others = vms(owner, *range(2, 9 if "replicas" in fields else 10))
    todo = heal(owner, *first, *vms(owner, 1, **FAILING), *others)
    assert healed(todo) == expected
    assert todo.held == ("" if expected else "healing: 1 virtual machine waits until others are available")


def test_p15_a_recreated_vm_counts_towards_the_limit_for_at_most_five_minutes():
    """No object changes at the deadline, so the plan must schedule the next reconciliation."""
    for lasting, expected in ((299, []), (300, ["web-1"])):
        owner = healing_pool(maxUnavailable=1, healed={0: entry(seconds=lasting)})
        starting = vms(owner, 0, ready=False, printable="Starting")
        todo = heal(owner, *starting, *vms(owner, 1, **FAILING), *vms(owner, *range(2, 10)))
        assert healed(todo) == expected
        assert todo.requeue_after_s == (None if expected else 1)


MAX_UNHEALTHY_CASES = {
    "half of them": (10, 5, None, True),
    "more than half": (10, 6, None, False),
    "one of one": (1, 1, None, True),
    "one of two": (2, 1, None, True),
    "two of two": (2, 2, None, False),
    "one of three": (3, 1, None, True),
    "two of three": (3, 2, None, False),
    "as many as the number": (10, 3, "3", True),
    "more than the number": (10, 4, "3", False),
    "all, if 100% is allowed": (10, 10, "100%", True),
    "a percentage is at least one": (10, 1, "1%", True),
    "a percentage": (10, 3, "29%", False),
    "an invalid value counts as half": (10, 5, "many", True),
    "an invalid value counts as no more than half": (10, 6, "0", False),
}


@pytest.mark.parametrize(
    ("members", "failing", "annotation", "heals"), MAX_UNHEALTHY_CASES.values(), ids=MAX_UNHEALTHY_CASES
)
def test_p15_healing_is_blocked_if_too_many_vms_fail_at_the_same_time(members, failing, annotation, heals):
    owner = healing_pool(replicas=members, annotations={MAX_UNHEALTHY: annotation} if annotation else {})
    todo = heal(owner, *vms(owner, *range(failing), **FAILING), *vms(owner, *range(failing, members)))
    assert len(healed(todo)) == (failing if heals else 0)
    assert (Why.FEWER in [each.why for each in todo.waits]) is not heals
    assert ("HealingHeld" in reasons(todo)) is not heals


def test_p15_failing_vms_that_are_not_due_count_towards_max_unhealthy():
    owner = healing_pool(replicas=4)
    fresh = vms(owner, 1, 2, ready_for_s=1, **STUCK)
    todo = heal(owner, *vms(owner, 0, **FAILING), *fresh, *vms(owner, 3))
    assert (healed(todo), reasons(todo), todo.requeue_after_s) == ([], ["HealingHeld"], 299)


PRESERVING = {"proactive": {"statePreservation": "Online"}}
DISK_FAILS = {"ready": False, "printable": "DataVolumeError", "ready_for_s": 3600}


@pytest.mark.parametrize("strategy", [PRESERVING, None], ids=["kept", "not kept"])
def test_p15_a_vm_is_deleted_in_the_foreground_only_if_its_disks_are_not_kept(strategy):
    """A foreground deletion deletes the disks before the VM (P10)."""
    owner = healing_pool(scaleInStrategy=strategy, spec=vm_spec(disks=["data"]))
    for changes in (FAILING, *([] if strategy else [DISK_FAILS])):
        todo = heal(owner, *vms(owner, 0, **changes), *vms(owner, 1, 2))
        [delete] = [each for each in todo.actions if isinstance(each, Delete)]
        assert delete.foreground is (strategy is None)


@pytest.mark.parametrize("state", ["DataVolumeError", "ErrorPvcNotFound"])
def test_p15_a_vm_is_not_healed_if_its_failing_disk_is_preserved(state):
    owner = healing_pool(scaleInStrategy=PRESERVING, spec=vm_spec(disks=["data"]))
    todo = heal(owner, *vms(owner, 0, **{**DISK_FAILS, "printable": state}), *vms(owner, 1, 2))
    assert todo.actions == ()
    assert reasons(todo) == ["HealingHeld"]
    [notice] = todo.notices
    assert "web-0" in notice.message
    assert state in notice.message
    assert "disk" in todo.held


def test_p15_a_failing_vm_is_not_healed_during_a_snapshot_and_an_event_has_the_reason():
    owner = healing_pool()
    failing, others = vms(owner, 0, snapshot="monday", **FAILING), vms(owner, 1, 2)
    todo = heal(owner, *failing, *others)
    assert todo.actions == ()
    assert todo.held == "healing: web-0 waits: snapshot monday is in progress"
    [notice] = todo.notices
    assert notice.reason == "HealingHeld"
    assert notice.message == "web-0 is not replaced: snapshot monday is in progress"
    [same] = heal(owner, *failing, *others).notices
    [other] = heal(owner, *vms(owner, 0, snapshot="tuesday", **FAILING), *others).notices
    assert notice.once == same.once != other.once


def test_p8_a_vm_with_a_snapshot_in_progress_comes_last_in_a_scale_in():
    owner = pool(replicas=1, scaleInStrategy=DESCENDING)
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), *vms(owner, 2, snapshot="monday"))))
    assert (deleted_vms(todo), todo.held, todo.notices) == (["web-1", "web-0"], "", ())


def test_p8_a_scale_in_waits_for_a_marked_vm_with_a_snapshot_in_progress_and_deletes_no_other_vm():
    owner = pool(replicas=2, scaleInStrategy=DESCENDING)
    machines = (*vms(owner, 1, 2), *vms(owner, 0, snapshot="monday", annotations={REMOVE: "true"}))
    todo = plan(snapshot(owner, machines))
    assert (deleted_vms(todo), [notice.reason for notice in todo.notices]) == ([], ["ScaleInHeld"])
