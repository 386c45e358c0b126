"""P3, P4, P8 and P9: scale-out and scale-in."""

import json

import pytest

from controller.kubevirt.annotations import POOL_FINALIZER, PROTECT
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DATA_VOLUMES, PVCS, VMS
from controller.pool.plan import plan
from controller.runtime.actions import Confirm, Create, Delete, Patch
from tests.pool_builders import pool, snapshot, vm, vm_spec, vms
from tests.pool_simulation import PoolSimulation

SPARE = {"selectors": {"labelSelector": {"matchLabels": {"tier": "spare"}}}, "sortPolicy": "AscendingOrder"}
ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
PRESERVING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}, "statePreservation": "Offline"}}


def names(todo, kind):
    return [each.key.name for each in todo.actions if isinstance(each, kind) and each.resource is VMS]


def spare(owner, name, **changes):
    """A VM that the selection policy `SPARE` matches."""
    return vm(name, owner=owner, spec=vm_spec(labels={"tier": "spare"}), **changes)


LEAVING = {"deleting": True, "finalizers": ("x",)}

CREATED = {
    "the smallest free ordinals": (5, {1: {}, 4: {}}, ["web-0", "web-2", "web-3"]),
    "a deleted VM": (3, {0: {}, 2: {}}, ["web-1"]),
    "a terminating VM counts and keeps its name": (3, {0: {}, 1: {}, 2: LEAVING}, []),
    "as many as wanted": (300, {ordinal: {} for ordinal in range(300)}, []),
    "at most burst": (1000, {}, [f"web-{ordinal}" for ordinal in range(250)]),
}


@pytest.mark.parametrize(("replicas", "present", "expected"), CREATED.values(), ids=CREATED)
def test_p3_p4_missing_vms_are_created(replicas, present, expected):
    owner = pool(replicas=replicas)
    elsewhere = (vm("web-9999", finalizers=()), vm("other-0", finalizers=()))
    members = [vm(f"web-{ordinal}", owner=owner, **changes) for ordinal, changes in present.items()]
    todo = plan(snapshot(owner, (*members, *elsewhere)))
    assert [(type(each), each.key.name) for each in todo.actions] == [(Create, name) for name in expected]
    assert todo.held == ("750 more creates wait for the next pass" if replicas == 1000 else "")


def test_p4_a_pool_is_confirmed_before_new_vms_replace_a_vm_that_left_it():
    owner = pool(replicas=2)
    left = vm("web-0", finalizers=())
    first, *others = plan(snapshot(owner, (left, *vms(owner, 1)), revisions=())).stages
    [confirm] = first.actions
    assert isinstance(confirm, Confirm)
    assert (confirm.key, confirm.uid, first.essential) == (owner.metadata.key, owner.metadata.uid, True)
    assert {type(action) for stage in others for action in stage.actions} == {Create}


def test_p3_a_create_names_the_disks_that_an_earlier_vm_may_have_left():
    owner = pool(replicas=2, spec=vm_spec(disks=["data", "logs"]))
    creates = [each for each in plan(snapshot(owner)).actions if isinstance(each, Create) and each.resource is VMS]
    assert [[(resource, key.name) for resource, key in each.reusable_disks] for each in creates] == [
        [(DATA_VOLUMES, "data-0"), (PVCS, "data-0"), (DATA_VOLUMES, "logs-0"), (PVCS, "logs-0")],
        [(DATA_VOLUMES, "data-1"), (PVCS, "data-1"), (DATA_VOLUMES, "logs-1"), (PVCS, "logs-1")],
    ]


def test_p4_the_revision_is_created_before_the_first_vm():
    first, second = plan(snapshot(pool(replicas=2), revisions=())).stages
    assert [each.resource for each in first.actions] == [CONTROLLER_REVISIONS]
    assert first.essential
    assert [each.key.name for each in second.actions] == ["web-0", "web-1"]


def test_p8_surplus_vms_are_deleted_by_uid_in_the_background():
    owner = pool(replicas=1, scaleInStrategy=ASCENDING)
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2)))
    assert names(todo, Delete) == ["web-0", "web-1"]
    assert {(each.uid, each.foreground) for each in todo.actions} == {("uid-web-0", False), ("uid-web-1", False)}


FIRST_FOUR = [f"web-{n}" for n in range(4)]
DELETED = {
    "terminating VMs count": (2, {0: {}, 1: {}, 2: {}, 3: LEAVING, 4: LEAVING}, ["web-0"], ""),
    "at most burst": (0, {n: {} for n in range(10)}, FIRST_FOUR, "6 more deletes wait for the next pass"),
    # The pool was scaled from 10 to 5. Five VMs are still terminating when the pool is scaled again.
    **{
        f"scaled to {wanted}": (wanted, {n: LEAVING if n > 3 else {} for n in range(9)}, [], "") for wanted in (4, 5, 9)
    },
}


@pytest.mark.parametrize(("replicas", "present", "expected", "held"), DELETED.values(), ids=DELETED)
def test_p8_surplus_vms_are_deleted(replicas, present, expected, held):
    owner = pool(replicas=replicas, scaleInStrategy=ASCENDING)
    members = [vm(f"web-{ordinal}", owner=owner, **changes) for ordinal, changes in present.items()]
    todo = plan(snapshot(owner, members, burst=4))
    assert [each.key.name for each in todo.actions] == names(todo, Delete) == expected
    assert todo.held == held


@pytest.mark.parametrize("is_leaving", [True, False], ids=["the only match is terminating", "no VM matches"])
def test_p8_no_vm_is_deleted_if_the_selectors_match_no_other_vm(is_leaving):
    owner = pool(replicas=1, scaleInStrategy={"proactive": {"selectionPolicy": SPARE}})
    matching = (spare(owner, "web-2", **LEAVING),) if is_leaving else ()
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), *matching)))
    assert todo.actions == ()
    assert todo.held == "1 surplus virtual machine may not be deleted"
    assert len(todo.notices) == 1


def test_p8_if_the_selectors_match_too_few_vms_an_event_says_how_many_stay():
    owner = pool(replicas=1, generation=7, scaleInStrategy={"proactive": {"selectionPolicy": SPARE}})
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), spare(owner, "web-2"))))
    assert names(todo, Delete) == ["web-2"]
    [notice] = todo.notices
    assert (notice.reason, notice.warning, notice.once) == ("ScaleInIncomplete", True, "kept 7 1")
    message = "1 surplus virtual machines stay, 1 are wanted: 2 do not match the selectors of scaleInStrategy"
    assert notice.message == message
    assert todo.held == "1 surplus virtual machine may not be deleted"


def test_p8_protected_vms_stay_and_an_event_says_so():
    owner = pool(replicas=0)
    todo = plan(snapshot(owner, (*vms(owner, 0, annotations={PROTECT: "true"}), *vms(owner, 1))))
    assert names(todo, Delete) == ["web-1"]
    [notice] = todo.notices
    assert notice.reason == "ProtectedFromDeletion"
    assert notice.message == f"1 surplus virtual machines stay, 0 are wanted: 1 are protected by {PROTECT}"


@pytest.mark.parametrize("strategy", ["opportunistic", "unmanaged"])
def test_p9_a_pool_that_may_not_delete_vms_waits_for_its_users(strategy):
    owner = pool(replicas=1, scaleInStrategy={strategy: {}})
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2)))
    assert todo.actions == ()
    assert todo.held == f"2 surplus virtual machines stay until a user deletes them: scale-in is {strategy}"


@pytest.mark.parametrize("strategy", ["proactive", "opportunistic", "unmanaged"])
def test_p9_a_vm_that_a_user_deletes_is_replaced_if_members_are_missing(strategy):
    simulation = PoolSimulation(pool(replicas=3, scaleInStrategy={strategy: {}}))
    simulation.come_to_rest()
    before = simulation.vms["web-1"]["metadata"]["uid"]
    simulation.delete_by_user("web-1")
    simulation.come_to_rest()
    assert simulation.members() == ["web-0", "web-1", "web-2"]
    assert simulation.vms["web-1"]["metadata"]["uid"] != before


def test_p10_a_vm_without_the_finalizer_gets_it_before_it_is_deleted_if_disks_are_preserved():
    owner = pool(replicas=1, scaleInStrategy=PRESERVING)
    todo = plan(snapshot(owner, (*vms(owner, 0, finalizers=("x",)), *vms(owner, 1, 2))))
    assert names(todo, Delete) == ["web-1"]
    [patch] = [each for each in todo.actions if isinstance(each, Patch)]
    assert patch.key.name == "web-0"
    assert json.loads(patch.body)["metadata"] == {
        "uid": "uid-web-0",
        "resourceVersion": "1",
        "finalizers": ["x", POOL_FINALIZER],
    }


def test_p10_a_vm_without_the_finalizer_is_deleted_if_disks_are_not_preserved_or_its_name_is_foreign():
    owner = pool(replicas=0, scaleInStrategy=ASCENDING)
    assert names(plan(snapshot(owner, vms(owner, 0, finalizers=()))), Delete) == ["web-0"]
    preserving = pool(replicas=0, scaleInStrategy=PRESERVING)
    assert names(plan(snapshot(preserving, (vm("mine", owner=preserving, finalizers=()),))), Delete) == ["mine"]
