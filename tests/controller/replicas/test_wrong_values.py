"""P23, R3, P7: what users write wrong: annotations, and fields of VMs and VMIs that cannot be decoded."""

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import find_true
from controller.kinds import REPLICA_SETS
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.leaving.claims import plan_strays
from controller.pool.members.machine import Machine
from controller.pool.members.unready_periods import Observation, next_period
from controller.pool.plan import plan as plan_pool
from controller.pool.status import next_status as pool_status
from controller.replicas.catalogue import BY_NAME, CATALOGUE, HIGHEST, OPAQUE, Place, without_foreign_annotations
from controller.replicas.notes import UNDECODABLE, undecodable_notices
from controller.replicas.wrong_annotations import MAX_NOTICES, is_valid, with_hints, wrong_on
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.replicaset.status import next_status as set_status
from controller.runtime.actions import Create, Plan, RemoveOwnerReference
from informers.meta import ObjectMeta
from plugin.reading import situation_of
from plugin.views.reasons import reasons_of
from tests.builders import NOW, replicaset, snapshot, vmi
from tests.pool_builders import pool, vm, vm_spec, vms
from tests.pool_builders import snapshot as pool_snapshot
from tests.pool_builders import vmi as vmi_of
from tools.reference.metadata import read_texts

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


def test_p4_a_mark_in_the_template_of_a_pool_gets_on_no_vm_and_is_told():
    spec = vm_spec()
    marks = {names.CLAIMED_BY: "job", names.CLAIMED_UNTIL: "2020-01-01T00:00:00Z", names.STANDBY_STATE: "resting"}
    owner = pool(replicas=1, spec=spec)
    template = owner.spec.virtual_machine_template
    marked = replace(template, metadata=replace(template.metadata, annotations={**marks, "own": "x"}))
    found = pool_snapshot(replace(owner, spec=replace(owner.spec, virtual_machine_template=marked)))
    [body] = [msgspec.json.decode(each.body) for each in plan_pool(found).actions if each.resource is VMS]
    assert body["metadata"]["annotations"] == {"own": "x"}
    told = [each.text for each in found.wrong_annotations]
    assert told == [f"annotation {name} has no effect in the template: it is about one VM" for name in sorted(marks)]


def test_r3_a_vmi_with_an_unreadable_status_counts_and_its_set_stays_complete():
    owner = replicaset(replicas=3)
    members = [vmi("a", owner=owner), vmi("b", owner=owner), with_bad_status(vmi("c", owner=owner))]
    seen = snapshot(owner, members)
    todo = plan_set(seen)
    assert todo.actions == ()
    assert told(todo) == [
        f"virtual machine instance c has a field that cannot be decoded ({WHY}): it is not ready, and not deleted"
    ]
    status = set_status(seen, ())
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
    status = pool_status(pool_snapshot(owner, seen[:1], vmis=seen[1:]), ())
    assert (status.printable_status, status.problem) == ("Degraded", f"web-0: Undecodable, {WHY}")
    assert find_true(status.conditions, "Stalled") is None, "only a user can correct the field"


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
    unready_at = NOW - timedelta(seconds=1800)
    hours = [NOW + timedelta(hours=number) for number in range(3)]
    assert next_period(None, strange, hours[0]) is None
    period = next_period(None, readable, hours[1])
    assert period is not None
    assert period.since == unready_at
    period = next_period(period, strange, hours[1] + timedelta(minutes=1))
    period = next_period(period, strange, hours[2])
    period = next_period(period, readable, hours[2])
    assert period is not None
    assert period.since == unready_at


def test_p10_a_terminating_vm_whose_disks_are_unreadable_keeps_its_finalizer_and_its_pool_waits():
    owner = pool(replicas=0, deleting=True, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    member = vm("web-0", owner=owner, deleting=True, spec=vm_spec(disks=["data"]))
    assert of_kind(plan_pool(pool_snapshot(owner, (member,))), RemoveOwnerReference) == ["data", "data"]
    bad = with_bad_status(member, VMS)
    held = plan_pool(pool_snapshot(owner, (bad,)))
    assert held.actions == ()
    assert any(notice.reason == "ScaleInHeld" and "cannot be decoded" in notice.message for notice in held.notices)
    assert plan_strays([Machine(member)], burst=10).actions != ()
    assert plan_strays([Machine(bad)], burst=10).actions == ()


def test_the_events_of_an_object_come_when_its_age_has_doubled():
    bad = replace(vmi("a", age_s=0), undecodable=WHY)
    occasions = [
        undecodable_notices([bad], NOW + timedelta(seconds=seconds))[0].once for seconds in (0, 1, 2, 3, 4, 7, 8, 3600)
    ]
    assert len(set(occasions)) == 6
    day = {undecodable_notices([bad], NOW + timedelta(seconds=seconds))[0].once for seconds in range(86_400)}
    assert len(day) == 18


def messages(place: Place, **annotations: str) -> tuple[str, ...]:
    prefixed = {f"vmherd.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return tuple(each.text for each in with_hints(wrong_on(ObjectMeta(annotations=prefixed), place)))


def events(plan: Plan) -> list[str]:
    return [notice.message for notice in plan.notices if notice.reason == "InvalidAnnotation"]


def test_p23_each_entry_has_an_example_and_a_consequence_or_is_the_controllers_own():
    texts = read_texts()
    for each in CATALOGUE:
        example = texts[each.name].example
        if each.value == OPAQUE:
            assert (example, each.otherwise) == ("", "")
        else:
            assert is_valid(example, each.value), each.name
            assert each.otherwise


VALUES = {
    names.PROTECT: (("true", "false"), ("True", "no", "", "true\n")),
    names.DELETION_COST: (("0", "-12", str(HIGHEST), str(-HIGHEST - 1)), ("", "1.5", "+1", "007", "٣", "9" * 5000)),
    names.PARTITION: (
        ("0", "3", str(HIGHEST), "50%", "90%, 50%:10m,0", "4:1h30m,0:5s", "50%,50%,7,0", "0,0%"),
        (
            *("-1", "half", "1" * 11, "1_000", "101%", "90%,", "3:10", ",".join("1" * 11)),
            *("10%,50%:10m,100%", "0,50%:10m,90%", "3, 5", "50%,4,60%", "0,1"),
        ),
    ),
    names.PROGRESS_DEADLINE: (("1", "600"), ("0", "-5", "10m", "1.5")),
    names.MAX_UNHEALTHY: (("1", "1%", "100%"), ("0", "0%", "101%", "half", "%")),
    names.ROLLING_UPDATE: (
        ("maxUnavailable=1", " maxUnavailable = 25% ", "maxSurge=1,maxUnavailable=0", "maxUnavailable=0%, maxSurge=9%"),
        ("25%", "maxUnavailable=0", "x=1", "", "maxSurge=1", "maxSurge=0,maxUnavailable=0%", "maxSurge=1,maxSurge=1"),
    ),
    names.MOST_DISRUPTIVE: (("restart", "recreate"), ("Restart", "delete", "")),
    names.TAKEOVER: (("proceed", "done", "held 1 abc"), ("yes", "Proceed", "")),
    names.HEALED: (("", "anything", "a\nb"), ()),
}


@pytest.mark.parametrize("name", VALUES)
def test_p23_the_rule_for_the_value_of_an_annotation(name: str):
    valid, invalid = VALUES[name]
    rule = BY_NAME[name].value
    assert [is_valid(each, rule) for each in valid] == [True] * len(valid)
    assert [is_valid(each, rule) for each in invalid] == [False] * len(invalid)


def test_p23_a_message_names_the_annotation_its_value_what_is_right_and_the_consequence():
    assert messages(Place.POOL, max_unhealthy="half") == (
        'annotation vmherd.dev/max-unhealthy is "half": it must be a number from 1, or "1%" to "100%", '
        "so it counts as 50%",
    )
    assert messages(Place.VM, protect="True") == (
        'annotation vmherd.dev/protect is "True": it must be "true" or "false", so it is protected',
    )
    assert messages(Place.VM, protects="true", remoev="true", colour="red") == (
        "annotation vmherd.dev/protects is unknown, so it has no effect; did you mean vmherd.dev/protect?",
        "annotation vmherd.dev/remoev is unknown, so it has no effect; did you mean vmherd.dev/remove?",
        "annotation vmherd.dev/colour is unknown, so it has no effect",
    )
    assert messages(Place.SET, partition="3", protect="true") == (
        "annotation vmherd.dev/partition has no effect on sets: it belongs on pools",
        "annotation vmherd.dev/protect has no effect on sets: it belongs on VMs and VMIs of sets",
    )
    assert messages(Place.VMI_OF_VM, remove="true") == (
        "annotation vmherd.dev/remove has no effect on VMIs of VMs: it belongs on VMs and VMIs of sets",
    )


def test_p23_of_many_unknown_annotations_ten_are_named_and_the_others_are_counted():
    many = {f"x{number}": "" for number in range(5000)}
    found = messages(Place.VM, protect="True", partition="3", removed="true", **many)
    assert [re.sub(" .*", "", each.removeprefix("annotation vmherd.dev/")) for each in found] == [
        *("protect", "partition", "removed", "x0", "x1", "x10", "x100", "x1000", "x1001", "x1002", "x1003", "x1004"),
        "4991",
    ]
    assert found[-1] == "4991 more unknown annotations have no effect"


def test_the_cache_keeps_only_the_annotations_that_the_controller_reads():
    kept = without_foreign_annotations(
        vmi(annotations={names.DELETION_COST: "1", "other.example.com/data": "x" * 200_000})
    )
    assert kept.metadata.annotations == {names.DELETION_COST: "1"}
    assert without_foreign_annotations(vmi(annotations={"a": "b"})).metadata.annotations is None
    same = vmi(annotations={names.DELETION_COST: "1"})
    assert without_foreign_annotations(same) is same


def test_p23_annotations_of_other_programs_and_right_ones_are_not_named():
    others = ObjectMeta(annotations={"example.com/protect": "x", "sim.vmherd.dev/ready-after": "x"})
    assert wrong_on(others, Place.VM) == ()
    assert (
        messages(Place.POOL, partition="3", healed="[]", takeover="held 1 abc", most_disruptive_action="restart") == ()
    )


def set_with(*members: dict[str, str], paused: bool = False, **annotations: str) -> SetSnapshot:
    owner = replicaset(replicas=len(members), annotations=annotations, paused=paused)
    return snapshot(owner, [vmi(f"web-{n}", owner=owner, annotations=each) for n, each in enumerate(members)])


@pytest.mark.parametrize("paused", [False, True])
def test_p23_an_event_and_the_status_of_a_set_name_its_wrong_annotations_and_those_of_its_vmis(paused):
    seen = set_with(
        {}, {"vmherd.dev/protect": "no"}, {"vmherd.dev/protect": "no"}, **{"vmherd.dev/x": "y"}, paused=paused
    )
    unknown = "annotation vmherd.dev/x is unknown, so it has no effect"
    assert events(plan_set(seen)) == [
        unknown,
        'VMI web-1 and 1 more: annotation vmherd.dev/protect is "no": it must be "true" or "false", so it is protected',
    ]
    status = set_status(seen, ())
    assert status.problem == f"{unknown} (and 1 more wrong annotation)"
    assert status.printable_status == ("Paused" if paused else "Running")
    assert events(plan_set(set_with({}, {}))) == []
    assert set_status(set_with({}, {}), ()).problem is None


def test_p23_an_event_and_the_status_of_a_pool_name_its_wrong_annotations_those_of_its_vms_and_of_their_vmis():
    owner = pool(replicas=3, annotations={"vmherd.dev/partition": "half"})
    machines = (*vms(owner, 0, annotations={"vmherd.dev/deletion-cost": "low"}), *vms(owner, 1, 2))
    vmis = [vmi_of(each) for each in machines]
    vmis[2] = vmi_of(machines[2], annotations={"vmherd.dev/protect": "true"})
    seen = pool_snapshot(owner, machines, vmis=vmis)
    steps = "an ordinal, a percentage, or up to ten falling steps with pauses such as 90%,50%:10m,0"
    partition = f'annotation vmherd.dev/partition is "half": it must be {steps}, so nothing is rolled out'
    assert events(plan_pool(seen)) == [
        partition,
        'VM web-0: annotation vmherd.dev/deletion-cost is "low": it must be an integer, so it counts as 0',
        "VMI web-2: annotation vmherd.dev/protect has no effect on VMIs of VMs: it belongs on VMs and VMIs of sets",
    ]
    status = pool_status(seen, ())
    assert (status.printable_status, status.problem) == ("Running", f"{partition} (and 2 more wrong annotations)")


def test_p23_a_wrong_annotation_gives_one_event_for_each_value():
    def occasions(*values: str) -> list[str]:
        return [each.once for each in plan_set(set_with(*({"vmherd.dev/protect": value} for value in values))).notices]

    assert occasions("no") == occasions("no", "no") != occasions("yes")
    assert len(occasions(*map(str, range(2 * MAX_NOTICES)))) == MAX_NOTICES


def test_p23_why_names_wrong_annotations():
    seen = set_with({}, {"vmherd.dev/remove": "yes"}, **{"vmherd.dev/partitio": "1"})
    reasons = reasons_of(situation_of(REPLICA_SETS, "kubevirt.io", seen), None, NOW)
    assert [reason.text for reason in reasons if reason.topic == "wrong"] == [
        "annotation vmherd.dev/partitio is unknown, so it has no effect; did you mean vmherd.dev/partition?",
        'VMI web-1: annotation vmherd.dev/remove is "yes": it must be "true" or "false", so it is not marked',
    ]


def test_p23_the_annotation_that_stops_the_rollout_is_told_before_harmless_ones():
    times = dict.fromkeys((names.PROGRESS_DEADLINE, names.REPLACE_UNREADY_AFTER, names.PARTITION), "1m")
    values = {**times, names.PROTECT: "true", "vmherd.dev/a": ""}
    told = [each.message.split()[1] for each in wrong_on(ObjectMeta(annotations=values), Place.POOL)]
    assert told == [
        names.PARTITION,
        names.REPLACE_UNREADY_AFTER,
        names.PROGRESS_DEADLINE,
        names.PROTECT,
        "vmherd.dev/a",
    ]
    deadline = wrong_on(ObjectMeta(annotations={names.PROGRESS_DEADLINE: "1m"}), Place.POOL)[0].message
    assert deadline.endswith('is "1m": it must be plain seconds, such as 60, so it counts as 600')
