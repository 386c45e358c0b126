"""P16: the order of a reconciliation, its plans for pools and VMs of any form, and takeovers."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.apimachinery.conditions import EARLIEST, LATEST, with_timezone
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.pool.plan import plan
from controller.pool.status import next_status, outcome_notices
from controller.replicaset import plan as set_plan
from controller.replicaset import status as set_status
from controller.runtime.actions import Create, Delete, Done, Patch, ThreeWayMerge
from controller.runtime.dry_run import reported_actions
from controller.runtime.status import status_patch
from tests import builders
from tests.builders import LABELS, NOW
from tests.pool_builders import ANOTHER_CONTROLLER, pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_scenes import announced_for, changed_pool, merged
from tests.pool_simulation import PoolSimulation
from tests.pool_strategies import wild_pools

HEALING = {"startUpFailureThreshold": 1}


def steps(todo):
    return [[(a.resource.kind, type(a).__name__, a.key.name) for a in stage.actions] for stage in todo.stages]


def test_p16_the_stages_are_removals_finalizer_healing_and_scaling():
    owner = pool(replicas=5, finalizers=(), autohealing=HEALING)
    leaving, released = vms(owner, 0, deleting=True), vms(owner, 1, labels={"app": "debug"})
    members = (*leaving, *released, *vms(owner, 2, ready=False, failures=1), *vms(owner, 3, 4))
    running = [vmi(each) for each in members[3:]]
    of_vm, of_pool = ("VirtualMachine", "Patch"), ("VirtualMachinePool", "Patch")
    before = [of_vm, of_pool, of_vm, of_pool]  # a finalizer, the note of a release, the release, the pool's finalizer
    create = ("VirtualMachine", "Create")
    announcing = plan(snapshot(owner, members, vmis=running))
    assert [kinds[0][:2] for kinds in steps(announcing)] == [*before, ("VirtualMachinePool", "Patch"), create]
    deleting = plan(snapshot(announced_for(owner, members[2]), members, vmis=running))
    assert [kinds[0][:2] for kinds in steps(deleting)] == [*before, ("VirtualMachine", "Delete"), create]


def test_p16_an_update_waits_until_the_count_is_right():
    owner, revisions = changed_pool(replicas=3)
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
    return changed_pool(status={"conditions": [{**REFUSED, "reason": reason}]}, **fields)


def test_p16_an_update_does_not_wait_for_creates_that_the_server_refuses():
    owner, revisions = refused(replicas=3)
    todo = plan(snapshot(owner, vms(owner, 0, 1), revisions=revisions))
    creates, updates = todo.stages
    assert [(type(each), each.key.name) for each in creates.actions] == [(Create, "web-2")]
    assert not creates.essential, "a refused create does not stop the update"
    assert {type(each) for each in updates.actions} == {ThreeWayMerge}
    assert sorted(merged(todo)) == ["web-0", "web-1"]


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


def test_p16_revisions_are_deleted_only_if_nothing_is_scaled_or_updated():
    owner, (first, second) = changed_pool(replicas=1)
    unused = revision(pool(spec=vm_spec(image="v0")), "web-0", number=0)
    kept = {"revisions": [unused, first, second], "revision_history": 0}
    at_rest = plan(snapshot(owner, vms(owner, 0, revision="web-2"), **kept))
    assert {each.resource for each in at_rest.actions} == {CONTROLLER_REVISIONS}
    assert [each.key.name for each in at_rest.actions] == ["web-1", "web-0"]
    for members in ((), vms(owner, 0, 1, revision="web-2"), vms(owner, 0, revision="web-1")):
        todo = plan(snapshot(owner, members, **kept))
        assert not [each for each in todo.actions if each.resource is CONTROLLER_REVISIONS]


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


def test_p2_a_vm_that_is_not_a_member_is_never_changed():
    simulation = PoolSimulation(pool(replicas=2))
    for name, owners in (("web-1", []), ("web-7", [msgspec.to_builtins(ANOTHER_CONTROLLER)])):
        metadata = {"name": name, "labels": {**LABELS}, "ownerReferences": owners}
        simulation.server.put(VMS, {"metadata": metadata, "spec": {}})
    simulation.come_to_rest()
    simulation.change(replicas=0)
    simulation.come_to_rest()
    assert not {each.key.name for each in simulation.actions if each.resource in (VMS, VMIS)} & {"web-1", "web-7"}
    assert simulation.vms.keys() >= {"web-1"}


@settings(max_examples=300)
@given(wild_pools, st.booleans(), st.booleans())
def test_p1_any_pool_that_decodes_gets_a_plan_and_a_status(owner, settled, deleting):
    if deleting:
        owner = replace(owner, metadata=replace(owner.metadata, deletion_timestamp=NOW))
    members = (*vms(owner, 0, 1), *vms(owner, 2, deleting=True), vm("web-3"), vm("web-4", owners=(ANOTHER_CONTROLLER,)))
    seen = snapshot(owner, members, revisions=(), settled=settled)
    todo = plan(seen)
    assert todo == plan(seen)
    if todo.held.startswith("invalid"):
        assert not [each for each in todo.actions if isinstance(each, Create | Delete)]
    for action in todo.actions:
        if isinstance(action, Create):
            msgspec.json.decode(action.body)
    outcomes = tuple(Done(action) for action in todo.actions)
    outcome_notices(outcomes)
    status_patch(owner, next_status(seen, outcomes))


ENDS = ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z")
TIMES = st.sampled_from([*ENDS, "2026-01-01T00:00:00Z"])
INTEGERS = st.one_of(st.sampled_from([0, -1, 250_000_000_000, 2**63 - 1, -(2**63)]), st.integers())
SECONDS = {names.SUBSTITUTE_LOST_AFTER: "2147483647", names.DRAIN_SECONDS: "2147483647"}


@given(st.datetimes(timezones=st.none() | st.just(UTC)))
def test_a_time_of_an_object_is_between_the_years_1000_and_9000(time: datetime) -> None:
    found = with_timezone(time)
    assert found is not None
    assert found.astimezone(UTC) + timedelta(days=36525) > found
    if 1000 <= time.year < 9000:
        assert found == time.replace(tzinfo=UTC)
    else:
        assert found in (EARLIEST, LATEST)


@given(st.lists(TIMES, min_size=4, max_size=4), INTEGERS.filter(lambda each: abs(each) < 2**63), st.booleans())
def test_no_time_and_no_number_of_a_vm_or_vmi_stops_the_plan_of_a_pool(
    times: list[str], number: int, terminating: bool
) -> None:
    spec = vm_spec()
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = number
    notes = {names.HEALED: f'{{"0":["uid-web-0",1,"{times[0]}"]}}', names.UNREADY: f'{{"0":["u","{times[1]}"]}}'}
    owner = pool(spec=vm_spec(image="v2"), generation=2, annotations={**SECONDS, **notes})
    marks = {names.BUSY_UNTIL: times[2], names.DRAINING: f"update until {times[3][:19]}Z of uid-web-0"}
    member = vm("web-0", owner=owner, spec=spec, revision="web-1", annotations=marks)
    instance = with_times(vmi(member, ready=False, reason="PodTerminating" if terminating else None), times)
    seen = snapshot(owner, [member], vmis=[VMIS.decode(instance)])
    plan(seen)
    next_status(seen, ())


@given(st.lists(TIMES, min_size=4, max_size=4), st.sampled_from(["Running", "Failed", "Succeeded", "Pending"]))
def test_no_time_of_a_vmi_stops_the_plan_of_a_set(times: list[str], phase: str) -> None:
    owner = builders.replicaset(annotations=SECONDS)
    notes = {"vmherd.dev/early-failures": f'{{"failures":3,"since":"{times[0]}","at":"{times[1]}"}}'}
    members = [builders.vmi(f"vmi-{n}", owner=owner, phase=phase, annotations=notes) for n in range(2)]
    seen = builders.snapshot(owner, [VMIS.decode(with_times(each, times)) for each in members])
    set_plan.plan(seen)
    set_status.next_status(seen, ())


def with_times(instance: Any, times: list[str]) -> bytes:
    document = msgspec.json.decode(msgspec.json.encode(instance))
    document["metadata"]["creationTimestamp"] = times[2]
    status = document.setdefault("status", {})
    for condition in status.get("conditions") or []:
        condition["lastTransitionTime"] = times[0]
    status["phaseTransitionTimestamps"] = [
        {"phase": phase, "phaseTransitionTimestamp": times[1]} for phase in ("Running", "Failed", "Succeeded")
    ]
    return msgspec.json.encode(document)


OLD, NEW = vm_spec(image="v1", disks=["data"]), vm_spec(image="v2", disks=["data"])
OTHER_DISKS = vm_spec(image="v1", disks=["data"], storage_class="slow")


def seen(owner, machines, *, kept=OLD, takes_over=True, **more):
    """The snapshot of a pool with the revision `web-1`. The argument `kept` is the VM spec in the revision."""
    revisions = [revision(pool(spec=kept), "web-1", number=1)]
    return snapshot(owner, machines, revisions=revisions, takes_over=takes_over, **more)


def to_take_over(mark=None, spec=NEW, **fields):
    annotations = {names.TAKEOVER: mark} if mark is not None else None
    return pool(generation=2, spec=spec, annotations=annotations, **fields)


def marks(todo):
    bodies = [json.loads(each.body) for each in todo.actions if isinstance(each, Patch) and each.is_note]
    return [body["metadata"]["annotations"][names.TAKEOVER] for body in bodies]


def changes(todo):
    return [each for each in todo.actions if isinstance(each, ThreeWayMerge | Delete)]


def test_a_pool_whose_vms_match_is_taken_over_without_any_change():
    owner = to_take_over(spec=OLD)
    todo = plan(seen(owner, vms(owner, 0, 1, 2)))
    assert marks(todo) == ["done"]
    assert reported_actions(todo) == ()
    assert (todo.held, todo.notices) == ("", ())
    done = to_take_over("done", spec=OLD)
    assert plan(seen(done, vms(done, 0, 1, 2))).actions == ()


@pytest.mark.parametrize(
    ("spec", "consequence"), [(NEW, "restarted"), (OTHER_DISKS, "deleted with their disks")], ids=["machine", "disks"]
)
def test_an_update_that_would_change_vms_is_held_and_an_event_says_so(spec, consequence):
    owner = to_take_over(spec=spec)
    todo = plan(seen(owner, vms(owner, 0, 1, 2)))
    assert changes(todo) == []
    assert [mark.split()[0] for mark in marks(todo)] == ["held"]
    [notice] = todo.notices
    assert notice.reason == "TakeoverHeld"
    assert f"3 virtual machines would be {consequence}" in notice.message
    assert "web-1 differs in spec." in notice.message
    assert f"{names.TAKEOVER}=proceed" in notice.message
    assert todo.held.startswith("takeover: ")


ALLOWED = {
    "the annotation allows it": ({"mark": "proceed"}, {}, 3, []),
    "another mode": ({}, {"takes_over": False}, 3, []),
    "nothing to update": ({"updateStrategy": {"unmanaged": {}}}, {}, 0, ["done"]),
    "an opportunistic pool": ({"updateStrategy": {"opportunistic": {}}}, {}, 0, ["held"]),
    **{f"mark {mark!r}": ({"mark": mark}, {}, 0, ["held"]) for mark in ("", "yes", "Proceed", "held", "held 0 x")},
}


@pytest.mark.parametrize(("fields", "mode", "number", "expected"), ALLOWED.values(), ids=ALLOWED)
def test_which_updates_are_allowed(fields, mode, number, expected):
    owner = to_take_over(**fields)
    todo = plan(seen(owner, vms(owner, 0, 1, 2), **mode))
    assert (len(changes(todo)), [mark.split()[0] for mark in marks(todo)]) == (number, expected)


def test_an_update_whose_restarts_wait_for_other_vms_is_held():
    """`web-2` is not ready, so the first reconciliation restarts no VMI. A later reconciliation restarts the VMIs."""
    owner = to_take_over(maxUnavailable=1)
    machines = (*vms(owner, 0, 1, revision="web-2"), *vms(owner, 2, revision="web-2", ready=False))
    started = [vmi(machines[0], revision="web-1"), vmi(machines[1], revision="web-1"), vmi(machines[2], ready=False)]
    found = seen(owner, machines, vmis=started)
    found = replace(found, revisions=(*found.revisions, revision(owner, "web-2", number=2)))
    assert [mark.split()[0] for mark in marks(plan(found))] == ["held"]


def test_the_next_change_of_the_template_allows_the_update():
    [mark] = marks(plan(seen(to_take_over(), vms(to_take_over(), 0, 1, 2))))
    changed = to_take_over(mark, spec=vm_spec(image="v3", disks=["data"]))
    todo = plan(seen(changed, vms(changed, 0, 1, 2)))
    assert len(changes(todo)) == 3
    assert marks(todo) == ["done"]
    assert isinstance(todo.actions[0], Patch)
