"""VMIs with equal traits are in one group, and a decision asks one VMI of each group."""

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.back_off import annotation_of
from controller.replicaset.plan import plan
from controller.replicaset.ranking import first_for_removal, rank_for_removal
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.status import next_status
from controller.replicaset.traits import group_vmis
from controller.runtime.actions import Delete
from controller.runtime.members.groups import Group, Members, one_by_one
from tests.builders import LABELS, NOW, replicaset, seconds_ago, snapshot, vmi
from tests.strategies import template_hash_of

HASH = template_hash_of(replicaset())


def replacement(failures: int, *, seconds: float) -> dict[str, str]:
    return {names.EARLY_FAILURES: annotation_of(failures, seconds_ago(seconds), seconds_ago(seconds - 5))}


FACTS: dict[str, list[Any]] = {
    "age_s": [5, 50, 650, 3000],
    "phase": [None, "Pending", "Scheduling", "Running", "Running", "Failed"],
    "node": [None, None, "node-1", "node-2"],
    "ready": [None, False, False, True],
    "reason": [None, "GuestNotRunning", "PodTerminating"],
    "ready_for_s": [4, 40, 640, 3500],
    "entered_s": [None, {}, {"Running": 45}, {"Running": 645}, {"Running": 5}],
    "migrating": [False, True],
    "deleting": [False, False, True],
    "labels": [{**LABELS, names.TEMPLATE_HASH: HASH}, {**LABELS, names.TEMPLATE_HASH: "older"}],
    "annotations": [
        None,
        *({name: "true"} for name in (names.PROTECT, names.REMOVE)),
        *({names.DELETION_COST: cost} for cost in ("-1", "5", "cheap")),
        *(replacement(failures, seconds=100 * failures) for failures in (1, 2, 3)),
        replacement(2, seconds=300),
    ],
    "obstacle": [None, None, "", "no image", "no node"],
}
"""The facts about a VMI, with values that make a difference for a plan or a status."""


def unready_vmi(name: str, *, obstacle: str | None, **facts: Any) -> VirtualMachineInstance:
    """A VMI with these facts. `obstacle` is the message of the condition `Synchronized`."""
    condition = Condition(type="Synchronized", status="False", reason="FailedCreate", message=obstacle)
    return vmi(name, owner=replicaset(), conditions=() if obstacle is None else (condition,), **facts)


CREATED: dict[str, Any] = {**{fact: values[0] for fact, values in FACTS.items()}, "reason": None, "entered_s": {}}
SCHEDULED: dict[str, Any] = {**CREATED, "phase": "Scheduled", "node": "node-1", "age_s": 650}
RUNNING: dict[str, Any] = {**SCHEDULED, "phase": "Running", "ready": False, "entered_s": {"Running": 45}}
REPLACEMENT: dict[str, Any] = {**RUNNING, "annotations": replacement(2, seconds=900)}
UNTIMED: dict[str, Any] = {**RUNNING, "entered_s": None}
FAILED: dict[str, Any] = {**RUNNING, "phase": "Failed"}
USUAL = [CREATED, SCHEDULED, RUNNING, UNTIMED, {**RUNNING, "ready_for_s": 3500}, REPLACEMENT, FAILED]
"""The facts about a VMI at some moments of its start."""


WAITING_FACTS: dict[str, list[Any]] = {
    "annotations": [
        None,
        {names.REMOVE: "true"},
        {names.REMOVE: "no"},
        {names.PROTECT: "true"},
        {names.DELETION_COST: "5"},
        {names.DELETION_COST: "-1"},
        {names.BUSY_UNTIL: "2999-01-01T00:00:00Z"},
    ],
    "node": [None, "node-1"],
    "migrating": [False, True],
    "ready": [None, False, True],
    "entered_s": [None, {}],
}
"""The facts that decide which VMIs without a node are deleted first, except the age."""


@pytest.mark.parametrize("fact", FACTS)
def test_vmis_with_a_difference_that_counts_are_in_different_groups(fact):
    deadline = {names.PROGRESS_DEADLINE: "7200"}
    for usual, more in product(USUAL, ({}, {names.REPLACE_UNREADY_AFTER: "900"})):
        owner = replicaset(replicas=2, annotations=deadline | more)
        for values in permutations(FACTS[fact], 2):
            vmis = [unready_vmi(f"vm-{number}", **usual | {fact: value}) for number, value in enumerate(values)]
            seen = snapshot(owner, vmis)
            single = replace(seen, members=one_by_one(seen.members))
            assert plan(single) == plan(seen)
            assert next_status(single, ()) == next_status(seen, ())


@pytest.mark.parametrize("fact", WAITING_FACTS)
@pytest.mark.parametrize("usual", [CREATED, {**CREATED, "ready": False, "entered_s": None}])
def test_r6_the_first_vmis_for_removal_are_the_first_of_all_in_order(fact, usual):
    for values in permutations(WAITING_FACTS[fact], 2):
        ages = product((5, 50), values)
        vmis = [unready_vmi(f"vm-{age_s}-{value}", **usual | {"age_s": age_s, fact: value}) for age_s, value in ages]
        for arranged in permutations(vmis):
            members = group_vmis(arranged)
            in_order = rank_for_removal(one_by_one(members), NOW)
            assert rank_for_removal(members, NOW) == in_order
            assert all(first_for_removal(members, number, NOW) == in_order[:number] for number in (1, 2, 3))


class CountedGroup(Group[VirtualMachineInstance]):
    """A group that counts the VMIs that are read one by one. `read` is the number of all such groups."""

    read = 0

    def __iter__(self) -> Iterator[VirtualMachineInstance]:
        for each in super().__iter__():
            CountedGroup.read += 1
            yield each


def large_set(number: int, *, wanted: int | None = None, **facts: Any) -> Snapshot:
    """A set with VMIs of a burst: 300 VMIs were created in each second."""
    owner = replicaset(replicas=number if wanted is None else wanted)
    labels = {**LABELS, names.TEMPLATE_HASH: HASH}
    vmis = [vmi(f"vm-{n}", owner=owner, labels=labels, **{"age_s": 1 + n // 300, **facts}) for n in range(number)]
    seen = snapshot(owner, vmis)
    groups = [CountedGroup(tuple(group), group.traits) for group in seen.members.groups]
    CountedGroup.read = 0
    return replace(seen, members=Members(tuple(groups)))


STARTING: dict[str, Any] = {"phase": "Scheduling", "ready": None, "node": None}


def test_a_pass_over_a_burst_of_starting_vmis_reads_no_vmi_one_by_one():
    seen = large_set(3000, **STARTING)
    assert plan(seen).requeue_after_s == 50
    assert next_status(seen, ()).printable_status == "Scaling"
    assert CountedGroup.read == 0


def test_the_scale_in_of_a_burst_reads_only_the_groups_that_lose_vmis():
    seen = large_set(3000, wanted=0, **STARTING)
    chosen = [action for action in plan(seen).actions if isinstance(action, Delete)]
    assert {int(action.key.name.removeprefix("vm-")) // 300 for action in chosen} == {0}
    assert CountedGroup.read == 300


def test_the_status_reads_the_vmis_with_problems_once():
    seen = large_set(1200, ready=False, ready_for_s=60, entered_s={"Running": 3000}, age_s=5000)
    assert next_status(seen, ()).problem == "vm-0: Running, GuestNotRunning"
    assert CountedGroup.read == 1200
