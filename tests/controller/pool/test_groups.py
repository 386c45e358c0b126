"""A plan and a status are the same with and without groups of VMs.

A missing trait lets VMs with different states be in one group. So each VM here differs from another VM in one fact.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.pool.members.machine import Machine
from controller.pool.members.revisions import ready_revisions
from controller.pool.members.snapshot import LiveUpdates, Snapshot
from controller.pool.members.traits import erase
from controller.pool.members.unready_periods import UnreadyPeriod
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.runtime.execute.refusals import Refusal
from controller.runtime.members.groups import grouped, one_by_one
from tests.builders import LABELS, NOW, seconds_ago
from tests.pool_builders import pool, revision, rules_of, snapshot, stores, vm, vm_spec, vmi, vms
from tests.pool_scenes import OFFLINE

FAILURE = {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": "no such instancetype"}
MARKS = {names.PROTECT: "true", names.REMOVE: "true", names.DELETION_COST: "-1"}
OTHER_FAILURE = {**FAILURE, "message": "its Pod exceeds a quota"}


def restart_required(seconds: float) -> dict[str, Any]:
    """The condition with which KubeVirt asks for a restart, since this number of seconds."""
    since = seconds_ago(seconds).isoformat()
    return {"type": "RestartRequired", "status": "True", "reason": "Changed", "lastTransitionTime": since}


STRATEGIES = [vm_spec(run_strategy=each) for each in ("Halted", "Manual")]
SLOW = vm_spec()
SLOW["template"]["spec"]["terminationGracePeriodSeconds"] = 3600


VM_FACTS: Mapping[str, st.SearchStrategy[Any]] = {
    "ready": st.sampled_from([True, False, False, None]),
    "ready_for_s": st.sampled_from([10, 400, 5000]),
    "age_s": st.sampled_from([5, 3600]),
    "printable": st.sampled_from(["Running", "Starting", "Stopped", "CrashLoopBackOff", "ErrorUnschedulable", ""]),
    "failures": st.sampled_from([None, 1, 5]),
    "deleting": st.sampled_from([False, False, True]),
    "revision": st.sampled_from(["web-1", "web-2", None]),
    "snapshot": st.sampled_from([None, "backup"]),
    "conditions": st.sampled_from([(), (FAILURE,), (OTHER_FAILURE,), (restart_required(1),), (restart_required(60),)]),
    "labels": st.sampled_from([LABELS, {"app": "other"}]),
    "annotations": st.sampled_from([None, *({name: value} for name, value in MARKS.items())]),
    "finalizers": st.sampled_from([None, ("pool.kubevirt.io/finalizer",), ()]),
    "spec": st.sampled_from([vm_spec(), *STRATEGIES, vm_spec(node_selector={"disk": "ssd"}), SLOW]),
}
VMI_FACTS: Mapping[str, st.SearchStrategy[Any]] = {
    "ready": st.sampled_from([True, False, False, None]),
    "ready_for_s": st.sampled_from([10, 400, 5000]),
    "age_s": st.sampled_from([5, 3600]),
    "phase": st.sampled_from(["Running", "Running", "Scheduling", "Failed", "Unknown"]),
    "deleting": st.sampled_from([False, False, True]),
    "reason": st.sampled_from([None, "PodTerminating", "GuestNotRunning"]),
    "migrating": st.sampled_from([False, False, True]),
    "entered_s": st.sampled_from([None, {"Running": 20}, {"Running": 3000}]),
    "revision": st.sampled_from(["", "web-1", "web-2"]),
    "node": st.sampled_from(["node-1", "node-2"]),
    "blocked_by": st.sampled_from([None, "disk-1", "disk-2"]),
}
PERIOD_FACTS: Mapping[str, st.SearchStrategy[Any]] = {
    "uid": st.sampled_from(["", "", "", "uid-of-an-earlier-vm"]),
    "since": st.sampled_from([10, 40, 900]).map(seconds_ago),
    "revision": st.sampled_from(["web-1", "web-2"]),
    "ready_at": st.sampled_from([None, None, seconds_ago(5), seconds_ago(100)]),
    "crashes": st.booleans(),
}
KINDS = (VM_FACTS, VMI_FACTS, PERIOD_FACTS)

ANNOTATIONS: Mapping[str, st.SearchStrategy[Any]] = {
    names.PROGRESS_DEADLINE: st.sampled_from([None, "30", "600"]),
    names.REPLACE_UNREADY_AFTER: st.sampled_from([None, "60"]),
    names.PARTITION: st.sampled_from([None, None, "2"]),
    names.MIN_READY: st.sampled_from([None, "30"]),
    names.SUBSTITUTE_LOST_AFTER: st.sampled_from([None, "60"]),
    names.ROLLBACK: st.sampled_from([None, "stalled"]),
    names.MOST_DISRUPTIVE: st.sampled_from([None, None, "live", "recreate"]),
    names.UNREADY: st.sampled_from([None, '{"1": ["uid-web-1", "2026-08-01T11:50:00Z"]}']),
}

Facts = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


@st.composite
def facts(draw: st.DrawFn) -> list[Facts]:
    """The facts about each VM of a pool, its VMI and its unready period. Only one fact differs from VM to VM."""
    common: Facts = ({}, {}, {})
    for kind, values in zip(common, KINDS, strict=True):
        kind.update({name: draw(values[name]) for name in draw(st.sets(st.sampled_from(sorted(values))))})
    number = draw(st.sampled_from(range(len(KINDS))))
    name = draw(st.sampled_from(sorted(KINDS[number])))
    found = []
    for value in draw(st.lists(KINDS[number][name], min_size=2, max_size=6)):
        one: Facts = (dict(common[0]), dict(common[1]), dict(common[2]))
        one[number][name] = value
        found.append(one)
    return found


def instance_of(machine, *, blocked_by=None, **facts):
    """The VMI of a VM. It cannot migrate because of this disk, unless there is none."""
    found = vmi(machine, **facts)
    if blocked_by is None:
        return found
    message = f"cannot migrate VMI: PVC {blocked_by} is not shared"
    blocked = Condition(type="LiveMigratable", status="False", reason="DisksNotLiveMigratable", message=message)
    return replace(found, status=replace(found.status, conditions=(*(found.status.conditions or ()), blocked)))


def period_of(machine, *, uid="", ready_at=None, crashes=False, **facts):
    """The unready period of a VM. Without `ready_at`, the VM is not ready."""
    known = {"since": seconds_ago(900), "revision": "web-2", **facts}
    return UnreadyPeriod(uid or machine.metadata.uid, **known, crashes=crashes, up_since=ready_at)


@st.composite
def situations(draw: st.DrawFn) -> Snapshot:
    annotations = {name: value for name, values in ANNOTATIONS.items() if (value := draw(values)) is not None}
    strategies = [OFFLINE, {"proactive": {"selectionPolicy": {"sortPolicy": "Newest"}}}, None]
    changes = {
        "replicas": draw(st.sampled_from([2, 4, 6, 10])),
        "generation": 2,
        "scaleInStrategy": draw(st.sampled_from(strategies)),
        "updateStrategy": draw(st.sampled_from([None, {"opportunistic": {}}])),
        "autohealing": draw(st.sampled_from([None, {"startUpFailureThreshold": 3, "minFailingToStartDuration": "1m"}])),
        "annotations": annotations,
    }
    owner = pool(**{name: value for name, value in changes.items() if value is not None})
    machines, instances, unready = [], [], {}
    has_vmi, has_period = draw(st.sampled_from([(True, False), (True, False), (True, True), (False, True)]))
    for ordinal, (of_vm, of_vmi, of_period) in enumerate(draw(facts())):
        machine = vm(f"web-{ordinal}", owner=owner, **of_vm)
        machines.append(machine)
        if has_vmi:
            instances.append(instance_of(machine, **of_vmi))
        if has_period:
            unready[machine.metadata.name] = period_of(machine, **of_period)
    old = revision(pool(spec=vm_spec(disks=["data"])), "web-1", number=1)
    revisions = [old, revision(owner, "web-2", number=2)]
    seen = snapshot(owner, machines, vmis=instances, revisions=revisions, unready_before=unready)
    chosen = st.sets(st.sampled_from([each.metadata.name for each in machines]))
    until = NOW + timedelta(seconds=60)
    refused = {name: Refusal(until, "denied by a webhook") for name in draw(st.just(set()) | chosen)}
    live = draw(st.none() | st.just(set()) | chosen)
    begun = {each.metadata.uid: seconds_ago(20) for each in machines if live and each.metadata.name in live}
    return replace(seen, refused=refused, live=None if live is None else LiveUpdates(begun))


def alone(seen: Snapshot) -> Snapshot:
    """The snapshot with each VM alone in its group, as if all VMs were read."""
    return replace(seen, members=one_by_one(seen.members))


@given(situations(), st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_a_plan_from_groups_is_the_plan_from_single_vms_in_any_order(seen, random):
    assert plan(alone(seen)) == plan(seen)
    assert next_status(alone(seen), ()) == next_status(seen, ())
    members = random.sample(list(seen.members), k=len(seen.members))
    shuffled = replace(seen, members=grouped(members, erase))
    assert plan(shuffled) == plan(seen)
    assert next_status(shuffled, ()) == next_status(seen, ())


def test_a_vm_that_crashed_a_moment_ago_is_not_in_the_group_of_steady_vms():
    machines = [Machine(each, vmi(each, ready_for_s=5)) for each in vms(pool(), 0, 1)]
    crashed = replace(machines[1], downtime=period_of(machines[1], ready_at=seconds_ago(5), crashes=True))
    seen = replace(snapshot(pool()), members=grouped([machines[0], crashed], erase))
    assert list(ready_revisions(seen)) == list(ready_revisions(alone(seen))) == [("web-1", 1)]


def of_own_disk(machine, **facts):
    """A VM and its VMI. Their messages name a disk of the VM."""
    disk = f"{machine.metadata.name}-disk"
    failure = Condition(type="Failure", status="True", reason="FailedCreate", message=f"{disk} is not found")
    status = replace(machine.status, conditions=(*machine.status.conditions, failure))
    return Machine(replace(machine, status=status), instance_of(machine, blocked_by=disk, **facts))


@pytest.mark.parametrize("facts", [{}, {"ready": False}], ids=["ready", "not ready"])
def test_vms_whose_messages_name_their_own_disks_are_one_group(facts):
    members = [of_own_disk(each, **facts) for each in vms(pool(), 0, 1, 2, **facts)]
    others = [Machine(each, vmi(each, **facts)) for each in vms(pool(), 3, 4, **facts)]
    assert [len(each) for each in grouped([*members, *others], erase).groups] == [3, 2]


def test_a_large_pool_reads_only_vms_that_changed_or_whose_period_ends():
    owner = pool(replicas=60)
    machines = vms(owner, *range(60), **{"ready": False, "ready_for_s": 4, "age_s": 5, "printable": "Starting"})
    instances = [vmi(each, ready=False) for each in machines]
    caches = stores(owner, machines, vmis=instances, revisions=[revision(owner, number=1)])
    rules, meta = rules_of(caches), owner.metadata

    def read(seconds: float) -> set[str]:
        """The names of the VMs that are read for a snapshot at this time."""
        chosen: set[str] = set()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(caches.vms, "get", lambda key, get=caches.vms.get: chosen.add(key.name) or get(key))
            rules.take_snapshot(meta.key, now=NOW + timedelta(seconds=seconds), settled=True)
        return chosen

    read(0)
    assert read(1) == set()
    caches.vms.apply(vm("web-7", owner=owner, version="2"))
    caches.vmis.apply(vmi(vm("web-7", owner=owner), version="2", ready_for_s=-2))
    assert read(2) == {"web-7"}
    assert (read(31), read(32), read(33)) == (set(), {"web-7"}, set())


@given(situations())
def test_what_members_have_in_common_has_no_name_and_no_uid(seen):
    for group in seen.members.groups:
        for part in (group.traits.vm, group.traits.vmi):
            if len(group) > 1 and part is not None:
                assert (part.metadata.name, part.metadata.uid, part.metadata.resource_version) == ("", "", "")
