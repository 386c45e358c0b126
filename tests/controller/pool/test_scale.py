"""P3, P4, P8 and P9: as many VMs as are wanted."""

import json

import pytest

from controller.kubevirt.annotations import DELETION_COST, POOL_FINALIZER, PROTECT, REVISION_NAME
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DATA_VOLUMES, VMS
from controller.pool.plan import plan
from controller.runtime.plan import Create, Delete, Patch
from tests.pool_builders import LABELS, pool, snapshot, vm, vm_spec, vms
from tests.pool_simulation import PoolSimulation

SPARE = {"selectors": {"labelSelector": {"matchLabels": {"tier": "spare"}}}, "sortPolicy": "AscendingOrder"}
ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
KEEPING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}, "statePreservation": "Offline"}}


def names(todo, kind):
    return [each.key.name for each in todo.actions if isinstance(each, kind) and each.resource is VMS]


def spare(owner, name, **changes):
    return vm(name, owner=owner, spec=vm_spec(labels={"tier": "spare"}), **changes)


def test_p3_what_is_missing_is_created_under_the_smallest_free_ordinals():
    owner = pool(replicas=5)
    assert names(plan(snapshot(owner, vms(owner, 1, 4))), Create) == ["web-0", "web-2", "web-3"]


def test_p3_a_name_that_somebody_else_has_is_left_out():
    owner = pool(replicas=2)
    strangers = vm("web-0", finalizers=())
    assert names(plan(snapshot(owner, (strangers,))), Create) == ["web-1", "web-2"]


def test_p3_a_vm_that_is_being_deleted_holds_its_name_and_its_place():
    owner = pool(replicas=3)
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), *vms(owner, 2, deleting=True, finalizers=("x",)))))
    assert todo.actions == ()


def test_p3_a_deleted_vm_comes_back_under_its_name_once_it_is_gone():
    owner = pool(replicas=3)
    assert names(plan(snapshot(owner, vms(owner, 0, 2))), Create) == ["web-1"]


def test_p4_creates_are_of_the_current_revision_and_known_by_their_owner():
    owner = pool(replicas=1)
    [create] = plan(snapshot(owner)).actions
    body = json.loads(create.body)
    assert create.owner_uid == "uid-of-the-pool"
    assert create.key == (body["metadata"]["namespace"], body["metadata"]["name"]) == ("default", "web-0")
    assert body["metadata"]["labels"] == {**LABELS, REVISION_NAME: "web-1"}


def test_p3_a_create_waits_for_the_disks_that_an_earlier_vm_of_its_name_left():
    owner = pool(replicas=2, spec=vm_spec(disks=["data", "logs"]))
    creates = [each for each in plan(snapshot(owner)).actions if isinstance(each, Create) and each.resource is VMS]
    assert [[(resource, key.name) for resource, key in each.reusable_disks] for each in creates] == [
        [(DATA_VOLUMES, "data-0"), (DATA_VOLUMES, "logs-0")],
        [(DATA_VOLUMES, "data-1"), (DATA_VOLUMES, "logs-1")],
    ]


def test_p4_the_revision_is_kept_before_the_first_vm_is_made_from_it():
    owner = pool(replicas=2)
    first, second = plan(snapshot(owner, revisions=())).stages
    assert [each.resource for each in first.actions] == [CONTROLLER_REVISIONS]
    assert first.essential
    assert [each.key.name for each in second.actions] == ["web-0", "web-1"]


def test_p4_no_more_than_the_burst_is_created_in_a_pass_and_the_plan_says_so():
    todo = plan(snapshot(pool(replicas=1000), burst=250))
    assert len(names(todo, Create)) == 250
    assert todo.held == "750 more creates wait for the next pass"


def test_p8_what_is_too_much_is_deleted_by_uid_in_the_background():
    owner = pool(replicas=1, scaleInStrategy=ASCENDING)
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2)))
    assert names(todo, Delete) == ["web-0", "web-1"]
    assert {(each.uid, each.foreground) for each in todo.actions} == {("uid-web-0", False), ("uid-web-1", False)}


def test_p8_no_more_than_the_burst_is_deleted_in_a_pass_and_the_plan_says_so():
    owner = pool(replicas=0)
    todo = plan(snapshot(owner, vms(owner, *range(10)), burst=4))
    assert len(names(todo, Delete)) == 4
    assert todo.held == "6 more deletes wait for the next pass"


def test_p8_vms_on_their_way_out_count_towards_the_number_to_remove():
    owner = pool(replicas=2, scaleInStrategy=ASCENDING)
    todo = plan(snapshot(owner, (*vms(owner, 0, 1, 2), *vms(owner, 3, 4, deleting=True, finalizers=("x",)))))
    assert names(todo, Delete) == ["web-0"]


@pytest.mark.parametrize("wanted", [4, 5, 9])
def test_p8_more_vms_on_their_way_out_than_should_go_are_no_reason_to_delete_or_to_fail(wanted):
    """10 -> 5, and then to `wanted` while five are still going: nobody more goes, and nobody comes before they went."""
    owner = pool(replicas=wanted)
    going = vms(owner, *range(5, 10), deleting=True, finalizers=("x",))
    todo = plan(snapshot(owner, (*vms(owner, 0, 1, 2, 3), *going)))
    assert todo.actions == ()


def test_p8_from_100_to_10_to_60_while_vms_are_still_going():
    simulation = PoolSimulation(pool(replicas=100))
    simulation.come_to_rest()
    simulation.change(replicas=10)
    simulation.run_pass()
    simulation.live_on()
    simulation.change(replicas=60)
    stayed = set(simulation.running())
    simulation.actions.clear()
    simulation.come_to_rest()
    assert len(stayed) == 10
    assert stayed <= set(simulation.members())
    assert simulation.members() == simulation.running()
    assert len(simulation.members()) == 60
    assert not [each for each in simulation.actions if isinstance(each, Delete)]


def test_p8_selectors_that_match_too_few_remove_those_and_the_user_is_told_how_many_stay():
    owner = pool(replicas=1, generation=7, scaleInStrategy={"proactive": {"selectionPolicy": SPARE}})
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), spare(owner, "web-2"))))
    assert names(todo, Delete) == ["web-2"]
    [notice] = todo.notices
    assert (notice.reason, notice.warning, notice.once) == ("ScaleInIncomplete", True, "kept 7 1")
    assert notice.message == ("1 more virtual machines than the 1 wanted stay: 2 are not selected by scaleInStrategy")
    assert todo.held == "1 more than wanted may not be deleted"


def test_p8_selectors_that_match_nobody_remove_nobody():
    owner = pool(replicas=0, scaleInStrategy={"proactive": {"selectionPolicy": SPARE}})
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2)))
    assert todo.actions == ()
    assert len(todo.notices) == 1


def test_p8_selectors_choose_among_those_that_stay_only():
    """The one that matches is going already: nobody else goes in its place, and one too many is told."""
    owner = pool(replicas=1, scaleInStrategy={"proactive": {"selectionPolicy": SPARE}})
    going = spare(owner, "web-2", deleting=True, finalizers=("x",))
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), going)))
    assert todo.actions == ()
    assert todo.held == "1 more than wanted may not be deleted"


def test_p8_the_protected_stay_and_the_user_is_told():
    owner = pool(replicas=0)
    todo = plan(snapshot(owner, (*vms(owner, 0, annotations={PROTECT: "true"}), *vms(owner, 1))))
    assert names(todo, Delete) == ["web-1"]
    [notice] = todo.notices
    assert notice.reason == "ProtectedFromDeletion"
    assert notice.message == f"1 more virtual machines than the 0 wanted stay: 1 are marked {PROTECT}"


def test_p8_a_cost_that_cannot_be_read_is_told_when_it_matters():
    owner = pool(replicas=1)
    marked = vms(owner, 0, annotations={DELETION_COST: "cheap"})
    assert [each.reason for each in plan(snapshot(owner, (*marked, *vms(owner, 1)))).notices] == ["InvalidAnnotation"]
    assert plan(snapshot(owner, marked)).notices == ()


@pytest.mark.parametrize("strategy", ["opportunistic", "unmanaged"])
def test_p9_a_pool_that_may_not_delete_waits_for_somebody_who_does(strategy):
    owner = pool(replicas=1, scaleInStrategy={strategy: {}})
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2)))
    assert todo.actions == ()
    assert todo.held == f"2 more than wanted stay until somebody deletes them: {strategy}"


@pytest.mark.parametrize("strategy", ["proactive", "opportunistic", "unmanaged"])
def test_p9_a_vm_that_a_user_deletes_comes_back_only_if_the_pool_is_short(strategy):
    simulation = PoolSimulation(pool(replicas=3, scaleInStrategy={strategy: {}}))
    simulation.come_to_rest()
    before = simulation.vms["web-1"]["metadata"]["uid"]
    simulation.delete_by_user("web-1")
    simulation.come_to_rest()
    assert simulation.members() == ["web-0", "web-1", "web-2"]
    assert simulation.vms["web-1"]["metadata"]["uid"] != before


@pytest.mark.parametrize("strategy", ["opportunistic", "unmanaged"])
def test_p9_a_vm_that_a_user_deletes_goes_while_the_pool_is_too_large(strategy):
    simulation = PoolSimulation(pool(replicas=3, scaleInStrategy={strategy: {}}))
    simulation.come_to_rest()
    simulation.change(replicas=1)
    simulation.delete_by_user("web-1")
    simulation.come_to_rest()
    assert simulation.members() == ["web-0", "web-2"]


def test_p10_a_vm_that_lost_our_finalizer_gets_it_back_before_it_is_deleted_if_its_disks_are_to_stay():
    owner = pool(replicas=1, scaleInStrategy=KEEPING)
    todo = plan(snapshot(owner, (*vms(owner, 0, finalizers=("x",)), *vms(owner, 1, 2))))
    assert names(todo, Delete) == ["web-1"]
    [patch] = [each for each in todo.actions if isinstance(each, Patch)]
    assert patch.key.name == "web-0"
    assert json.loads(patch.body)["metadata"] == {
        "uid": "uid-web-0",
        "resourceVersion": "1",
        "finalizers": ["x", POOL_FINALIZER],
    }


def test_p10_it_is_just_deleted_if_its_disks_may_go_or_if_nobody_would_let_it_go():
    owner = pool(replicas=0, scaleInStrategy=ASCENDING)
    assert names(plan(snapshot(owner, vms(owner, 0, finalizers=()))), Delete) == ["web-0"]
    keeping = pool(replicas=0, scaleInStrategy=KEEPING)
    assert names(plan(snapshot(keeping, (vm("mine", owner=keeping, finalizers=()),))), Delete) == ["mine"]


def test_a_pool_of_the_right_size_asks_for_nothing():
    owner = pool(replicas=300)
    assert plan(snapshot(owner, vms(owner, *range(300)))).actions == ()
