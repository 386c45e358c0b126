"""P23: the catalogue of annotations, and what the user hears about wrong ones."""

import re

import pytest

from controller.kinds import REPLICA_SETS
from controller.kubevirt import annotations as names
from controller.pool.plan import plan as plan_pool
from controller.pool.status import next_status as pool_status
from controller.replicas.catalogue import (
    BY_NAME,
    CATALOGUE,
    HIGHEST,
    MOST_UNKNOWN,
    OPAQUE,
    Place,
    without_foreign_annotations,
)
from controller.replicas.wrong_annotations import MAX_NOTICES, is_valid, with_hints, wrong_on
from controller.replicaset.plan import plan as plan_set
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from controller.replicaset.status import next_status as set_status
from controller.runtime.actions import Plan
from informers.meta import ObjectMeta
from plugin.views.reasons import reasons_of
from plugin.views.situations import situation_of
from tests import pool_builders
from tests.builders import NOW, replicaset, snapshot, vmi
from tests.pool_builders import pool, vms
from tools.reference.metadata import read_texts


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
        ("0", "3", str(HIGHEST), "50%", "90%, 50%:10m,0", "4:1h30m,0:5s"),
        ("-1", "half", "1" * 11, "1_000", "101%", "90%,", "3:10", ",".join("1" * 11)),
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


def test_p23_the_cache_keeps_the_number_of_the_other_unknown_annotations():
    many = {f"vmherd.dev/{number}": "x" * 50 for number in range(5000)}
    whole = vmi(annotations={**many, names.PROTECT: "True"})
    cached = without_foreign_annotations(whole)
    assert len(cached.metadata.annotations or {}) == MOST_UNKNOWN + 2
    assert wrong_on(cached.metadata, Place.VMI)[-1].message == "4990 more unknown annotations have no effect"
    assert wrong_on(cached.metadata, Place.VMI) == wrong_on(
        ObjectMeta(annotations={**many, names.PROTECT: "True"}), Place.VMI
    )
    assert without_foreign_annotations(cached) is cached


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
    assert status.problem == f"{unknown} (and 1 more wrong annotations)"
    assert status.printable_status == ("Paused" if paused else "Running")
    assert events(plan_set(set_with({}, {}))) == []
    assert set_status(set_with({}, {}), ()).problem is None


def test_p23_an_event_and_the_status_of_a_pool_name_its_wrong_annotations_those_of_its_vms_and_of_their_vmis():
    owner = pool(replicas=3, annotations={"vmherd.dev/partition": "half"})
    machines = (*vms(owner, 0, annotations={"vmherd.dev/deletion-cost": "low"}), *vms(owner, 1, 2))
    vmis = [pool_builders.vmi(each) for each in machines]
    vmis[2] = pool_builders.vmi(machines[2], annotations={"vmherd.dev/protect": "true"})
    seen = pool_builders.snapshot(owner, machines, vmis=vmis)
    steps = "an ordinal, a percentage, or up to ten steps with pauses such as 90%,50%:10m,0"
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
