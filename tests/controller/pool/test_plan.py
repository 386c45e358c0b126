"""P16: the order of the stages in a reconciliation, and the plans of paused, invalid and terminating pools."""

import pytest

from controller.kubevirt.annotations import REMOVE
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS
from controller.pool.plan import plan
from controller.runtime.actions import Create, Delete, ThreeWayMerge
from tests.pool_builders import pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_healing import announced_for
from tests.pool_updates import merged

HEALING = {"startUpFailureThreshold": 1}


def steps(todo):
    return [
        [(each.resource.kind, type(each).__name__, each.key.name) for each in stage.actions] for stage in todo.stages
    ]


def outdated(**fields):
    before = pool(spec=vm_spec(image="v1"), **fields)
    now = pool(spec=vm_spec(image="v2"), generation=2, **fields)
    return now, [revision(before, number=1), revision(now, number=2)]


def test_p16_the_stages_are_removals_finalizer_healing_and_scaling():
    owner = pool(replicas=5, finalizers=(), autohealing=HEALING)
    members = (
        *vms(owner, 0, deleting=True),
        *vms(owner, 1, labels={"app": "debug"}),
        *vms(owner, 2, ready=False, failures=1),
        *vms(owner, 3, 4),
    )
    running = [vmi(each) for each in members[3:]]
    of_vm, of_pool = ("VirtualMachine", "Patch"), ("VirtualMachinePool", "Patch")
    before = [of_vm, of_pool, of_vm, of_pool]  # a finalizer, the note of a release, the release, the pool's finalizer
    create = ("VirtualMachine", "Create")
    announcing = plan(snapshot(owner, members, vmis=running))
    assert [kinds[0][:2] for kinds in steps(announcing)] == [*before, ("VirtualMachinePool", "Patch"), create]
    deleting = plan(snapshot(announced_for(owner, members[2]), members, vmis=running))
    assert [kinds[0][:2] for kinds in steps(deleting)] == [*before, ("VirtualMachine", "Delete"), create]


def test_p16_an_update_waits_until_the_count_is_right():
    owner, revisions = outdated(replicas=3)
    short = plan(snapshot(owner, vms(owner, 0, 1), revisions=revisions))
    assert {type(each) for each in short.actions} == {Create}
    right = plan(snapshot(owner, vms(owner, 0, 1, 2), revisions=revisions))
    assert {type(each) for each in right.actions} == {ThreeWayMerge}
    too_many = plan(snapshot(owner, vms(owner, 0, 1, 2, 3), revisions=revisions))
    assert {type(each) for each in too_many.actions} == {Delete}
    leaving = (*vms(owner, 0, 1, 2), *vms(owner, 3, deleting=True, finalizers=("x",)))
    assert plan(snapshot(owner, leaving, revisions=revisions)).actions == ()


REFUSED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedScaleOut", "message": "exceeded quota"}


def refused(reason="FailedScaleOut", **fields):
    return outdated(status={"conditions": [{**REFUSED, "reason": reason}]}, **fields)


def test_p16_an_update_does_not_wait_for_creates_that_the_server_refuses():
    owner, revisions = refused(replicas=3)
    todo = plan(snapshot(owner, vms(owner, 0, 1), revisions=revisions))
    creates, updates = todo.stages
    assert [(type(each), each.key.name) for each in creates.actions] == [(Create, "web-2")]
    assert not creates.essential, "a refused create does not stop the update"
    assert {type(each) for each in updates.actions} == {ThreeWayMerge}
    assert sorted(merged(todo)) == ["web-0", "web-1"]


def test_p16_the_revision_of_a_refused_scale_out_is_created_once_and_before_the_update():
    owner, [first, _] = refused(replicas=3)
    revision_stage, creates, updates = plan(snapshot(owner, vms(owner, 0, 1), revisions=[first])).stages
    assert [each.resource for each in revision_stage.actions] == [CONTROLLER_REVISIONS]
    assert revision_stage.essential
    assert [len(stage.actions) for stage in (creates, updates)] == [1, 2]


@pytest.mark.parametrize("reason", ["FailedScaleIn", "FailedUpdate", "FailedRevisionPruning"])
def test_p16_an_update_still_waits_for_creates_after_other_failures(reason):
    owner, revisions = refused(reason, replicas=3)
    assert merged(plan(snapshot(owner, vms(owner, 0, 1), revisions=revisions))) == []


def test_p14_while_creates_are_refused_max_unavailable_counts_the_existing_members():
    """`maxUnavailable` is 50%.

    Four of the ten wanted members exist. So two members may be unavailable, and not five.
    """
    owner, revisions = refused(replicas=10, maxUnavailable="50%")
    machines = vms(owner, 0, 1, 2, 3, revision="web-2")
    old = [vmi(each, revision="web-1") for each in machines]
    todo = plan(snapshot(owner, machines, vmis=old, revisions=revisions))
    restarts = [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMIS]
    assert len(restarts) == 2


def test_p14_members_that_cannot_be_created_are_not_unavailable():
    owner, revisions = refused(replicas=10, maxUnavailable=1)
    machines = vms(owner, 0, 1, revision="web-2")
    old = [vmi(each, revision="web-1") for each in machines]
    todo = plan(snapshot(owner, machines, vmis=old, revisions=revisions))
    assert len([each for each in todo.actions if isinstance(each, Delete) and each.resource is VMIS]) == 1


def test_p16_an_update_waits_for_releases():
    owner, revisions = outdated(replicas=2)
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), *vms(owner, 2, labels={})), revisions=revisions))
    assert not [each for each in todo.actions if isinstance(each, ThreeWayMerge)]


def test_p16_an_update_does_not_wait_for_a_surplus_that_may_not_be_deleted():
    owner, revisions = outdated(replicas=1, scaleInStrategy={"unmanaged": {}})
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2), revisions=revisions))
    assert len([each for each in todo.actions if isinstance(each, ThreeWayMerge)]) == 1


def test_p16_revisions_are_deleted_only_if_nothing_is_scaled_or_updated():
    owner, (first, second) = outdated(replicas=1)
    unused = revision(pool(spec=vm_spec(image="v0")), "web-0", number=0)
    kept = {"revisions": [unused, first, second], "revision_history": 0}
    at_rest = plan(snapshot(owner, vms(owner, 0, revision="web-2"), **kept))
    assert [(each.resource, each.key.name) for each in at_rest.actions] == [
        (CONTROLLER_REVISIONS, "web-1"),
        (CONTROLLER_REVISIONS, "web-0"),
    ]
    for members in ((), vms(owner, 0, 1, revision="web-2"), vms(owner, 0, revision="web-1")):
        todo = plan(snapshot(owner, members, **kept))
        assert not [each for each in todo.actions if each.resource is CONTROLLER_REVISIONS]


def test_p15_a_vm_that_is_healed_counts_as_deleted_for_scale_in():
    """One VM is surplus and one VM fails. Only the failing VM is deleted, and only once."""
    owner = pool(replicas=2, autohealing=HEALING)
    members = (*vms(owner, 0, 1, annotations={REMOVE: "true"}), *vms(owner, 2, ready=False, failures=1))
    running = [vmi(each) for each in members[:2]]
    first = plan(snapshot(owner, members, vmis=running))
    assert not [each for each in first.actions if isinstance(each, Delete)]
    todo = plan(snapshot(announced_for(owner, members[2]), members, vmis=running))
    assert [each.key.name for each in todo.actions if isinstance(each, Delete)] == ["web-2"]


def test_p15_only_members_are_healed():
    owner = pool(replicas=1, autohealing=HEALING)
    foreign = [vm(name, finalizers=(), ready=False, failures=3) for name in ("web-7", "other")]
    assert plan(snapshot(owner, (*vms(owner, 0), *foreign))).actions == ()


def test_p15_p17_no_vm_is_healed_while_the_pool_is_paused_or_the_cache_is_stale():
    broken = {"ready": False, "failures": 9, "printable": "CrashLoopBackOff"}
    paused = pool(replicas=3, paused=True, autohealing=HEALING)
    todo = plan(snapshot(paused, vms(paused, 0, 1, 2, **broken)))
    assert (todo.actions, todo.held) == ((), "paused")
    owner = pool(replicas=3, autohealing=HEALING)
    assert plan(snapshot(owner, vms(owner, 0, 1, 2, **broken), settled=False)).actions == ()


def test_p1_an_invalid_pool_gives_one_event_for_each_generation():
    owner = pool(generation=4, selector={})
    todo = plan(snapshot(owner, vms(owner, 0), revisions=()))
    assert todo.actions == ()
    [notice] = todo.notices
    assert (notice.reason, notice.once, notice.warning) == ("InvalidSpec", "generation-4", True)
    assert todo.held == f"invalid: {notice.message}"
    assert todo.requeue_after_s is None


def test_r9_nothing_is_planned_before_the_cache_shows_earlier_writes():
    owner = pool(replicas=9, finalizers=())
    members = (*vms(owner, 0, deleting=True), *vms(owner, 1, labels={}), vm("web-2"))
    todo = plan(snapshot(owner, members, settled=False))
    assert todo.stages == ()
    assert todo.held == "the cache does not show all of our own writes yet"


@pytest.mark.parametrize("fields", [{"paused": True}, {"maxUnavailable": "half"}], ids=["paused", "invalid"])
def test_r9_a_paused_or_invalid_pool_waits_for_the_cache_too(fields):
    owner = pool(**fields)
    leaving = (*vms(owner, 0, deleting=True), vm("web-1"))
    assert len(plan(snapshot(owner, leaving)).actions) == 2
    assert plan(snapshot(owner, leaving, settled=False)).actions == ()
