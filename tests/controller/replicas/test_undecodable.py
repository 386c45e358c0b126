"""VMs and VMIs with a field that cannot be decoded, in the plans of sets (R3) and pools (P7)."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import find_true
from controller.kubevirt import vmis as kubevirt_vmis
from controller.kubevirt import vms as kubevirt_vms
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool import triggers as pool_triggers
from controller.pool.leaving.claims import plan_strays
from controller.pool.members.unready_periods import Down, Observation, next_period
from controller.pool.plan import plan as plan_pool
from controller.pool.status import next_status as next_pool_status
from controller.replicas.undecodable import UNDECODABLE, undecodable_notices
from controller.replicaset import triggers as set_triggers
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.status import next_status
from controller.runtime.actions import Create, Delete, Patch, Plan, RemoveOwnerReference, ThreeWayMerge
from informers.store import Store, Updated
from tests.builders import NOW, replicaset, snapshot, vmi
from tests.pool_builders import LABELS, pool, revision, vm, vm_spec
from tests.pool_builders import snapshot as pool_snapshot
from tests.pool_builders import vmi as vmi_of

WHY = "Expected `str | null`, got `int` - at `$.status.phase`"


def with_bad_status(of: Any, resource: Any = VMIS) -> Any:
    """Put a number into `status.phase`, and return the object as a cache has it: only the metadata."""
    document = msgspec.json.decode(msgspec.json.encode(of))
    document["status"] = {"phase": 7, "printableStatus": 7}
    with pytest.raises(msgspec.DecodeError):
        resource.decode(msgspec.json.encode(document))
    return resource.decode_metadata(msgspec.Raw(msgspec.json.encode(document)), WHY)


def of_kind(todo: Plan, kind: type[Any]) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, kind)]


def told(todo: Plan) -> list[str]:
    return [notice.message for notice in todo.notices if notice.reason == UNDECODABLE]


def test_r3_a_vmi_with_an_unreadable_status_counts_and_its_set_stays_complete():
    owner = replicaset(replicas=3)
    members = [vmi("a", owner=owner), vmi("b", owner=owner), with_bad_status(vmi("c", owner=owner))]
    seen = snapshot(owner, members)
    todo = plan_set(seen)
    assert todo.actions == ()
    assert told(todo) == [
        f"virtual machine instance c has a field that cannot be decoded ({WHY}): it is not ready, and not deleted"
    ]
    status = next_status(seen, ())
    assert (status.replicas, status.ready_replicas) == (3, 2)
    assert status.problem == f"c: Undecodable, {WHY}"
    assert find_true(status.conditions, "Stalled") is None, "only a user can correct the field"


def test_p7_a_vm_with_an_unreadable_status_counts_and_its_pool_creates_no_other_one():
    owner = pool(replicas=2)
    bad = with_bad_status(vm("web-1", owner=owner), VMS)
    todo = plan_pool(pool_snapshot(owner, (vm("web-0", owner=owner), bad)))
    assert of_kind(todo, Create) == []
    [message] = told(todo)
    assert message.startswith("virtual machine web-1 has a field that cannot be decoded")
    assert message.endswith("it is not healed, updated or scaled in")


@pytest.mark.parametrize("unreadable", ["VM", "VMI"])
def test_p17_the_status_of_a_pool_names_an_unreadable_object_and_the_pool_does_not_stall(unreadable):
    owner = pool(replicas=1)
    member = vm("web-0", owner=owner)
    instance = vmi_of(member)
    seen = (with_bad_status(member, VMS), instance) if unreadable == "VM" else (member, with_bad_status(instance))
    status = next_pool_status(pool_snapshot(owner, seen[:1], vmis=seen[1:]), ())
    assert (status.printable_status, status.problem) == ("Degraded", f"web-0: Undecodable, {WHY}")
    assert find_true(status.conditions, "Stalled") is None, "only a user can correct the field"


def test_p8_a_vm_with_an_unreadable_field_is_not_scaled_in_and_an_event_has_the_reason():
    owner = pool(replicas=0)
    bad = with_bad_status(vm("web-1", owner=owner), VMS)
    todo = plan_pool(pool_snapshot(owner, (vm("web-0", owner=owner), bad)))
    assert of_kind(todo, Delete) == ["web-0"]
    assert any(notice.reason == "ScaleInHeld" and "cannot be decoded" in notice.message for notice in todo.notices)


def changed(todo: Plan) -> list[str]:
    return of_kind(todo, ThreeWayMerge) + of_kind(todo, Patch)


def test_p12_not_even_the_labels_of_an_unreadable_vm_are_updated():
    updated = pool(replicas=1, generation=2, labels={**LABELS, "tier": "front"})
    kept = [revision(pool(replicas=1), "web-1", number=1), revision(updated, "web-2", number=2)]
    member = vm("web-0", owner=updated, revision="web-1")

    def plan_of(of: Any) -> Plan:
        return plan_pool(pool_snapshot(updated, (of,), vmis=(vmi_of(member),), revisions=kept))

    assert plan_of(member).actions != ()
    assert changed(plan_of(with_bad_status(member, VMS))) == []


def test_p15_a_vm_whose_vmi_has_an_unreadable_status_is_not_healed():
    owner = pool(replicas=1, autohealing={"startUpFailureThreshold": 1, "minFailingToStartDuration": "0s"})
    failing = vm("web-0", owner=owner, ready=False, printable="CrashLoopBackOff", failures=9)
    readable = vmi_of(failing, phase="Failed", ready=False)
    assert plan_pool(pool_snapshot(owner, (failing,), vmis=(readable,))).actions != ()
    todo = plan_pool(pool_snapshot(owner, (failing,), vmis=(with_bad_status(readable),)))
    assert todo.actions == ()
    assert any(notice.reason == "HealingHeld" for notice in todo.notices)


@pytest.mark.parametrize("unreadable", ["VM", "VMI"])
def test_p15_the_time_in_which_an_object_is_unreadable_does_not_count_as_unready(unreadable):
    member = vm("web-0", owner=pool(), ready=False)
    instance = vmi_of(member, ready=False)
    readable = Observation(member, instance)
    strange_vm, strange_vmi = with_bad_status(member, VMS), with_bad_status(instance)
    strange = Observation(strange_vm, instance) if unreadable == "VM" else Observation(member, strange_vmi)
    hours = [NOW + timedelta(hours=number) for number in range(3)]
    assert next_period(None, strange, hours[0]) is None
    period = next_period(None, readable, hours[1])
    assert isinstance(period, Down)
    assert period.since == hours[1]
    period = next_period(period, strange, hours[1] + timedelta(minutes=1))
    period = next_period(period, strange, hours[2])
    period = next_period(period, readable, hours[2])
    assert isinstance(period, Down)
    assert period.since == hours[2]


@pytest.mark.parametrize("member", [with_bad_status(vmi("a")), with_bad_status(vm("web-0", owner=pool()), VMS)])
def test_an_unreadable_status_does_not_prove_that_a_member_was_never_ready(member):
    assert not (kubevirt_vms if isinstance(member, VirtualMachine) else kubevirt_vmis).was_never_ready(member)


def test_p10_a_terminating_vm_whose_disks_are_unreadable_keeps_its_finalizer_and_its_pool_waits():
    owner = pool(replicas=0, deleting=True, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    member = vm("web-0", owner=owner, deleting=True, spec=vm_spec(disks=["data"]))
    assert of_kind(plan_pool(pool_snapshot(owner, (member,))), RemoveOwnerReference) == ["data", "data"]
    bad = with_bad_status(member, VMS)
    held = plan_pool(pool_snapshot(owner, (bad,)))
    assert held.actions == ()
    assert any(notice.reason == "ScaleInHeld" and "cannot be decoded" in notice.message for notice in held.notices)
    assert plan_strays([member], burst=10).actions != ()
    assert plan_strays([bad], burst=10).actions == ()


def test_the_events_of_an_object_come_when_its_age_has_doubled():
    bad = replace(vmi("a", age_s=0), undecodable=WHY)
    occasions = [
        undecodable_notices([bad], NOW + timedelta(seconds=seconds))[0].once for seconds in (0, 1, 2, 3, 4, 7, 8, 3600)
    ]
    assert len(set(occasions)) == 6
    day = {undecodable_notices([bad], NOW + timedelta(seconds=seconds))[0].once for seconds in range(86_400)}
    assert len(day) == 18


def test_an_owner_wakes_when_a_field_becomes_unreadable():
    owner, herd = replicaset(), pool()
    sets: Store[Any] = Store()
    sets.apply(owner)
    before: VirtualMachineInstance = vmi("a", owner=owner)
    change = Updated(before, replace(before, undecodable=WHY))
    assert [key.name for key, _ in set_triggers.replicasets_of_vmi(change, sets)] == [owner.metadata.name]
    member: VirtualMachine = vm("web-0", owner=herd)
    changed = Updated(member, replace(member, undecodable=WHY))
    assert [key.name for key, _ in pool_triggers.pools_of_vm(changed)] == ["web"]
