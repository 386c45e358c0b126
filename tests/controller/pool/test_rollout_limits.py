"""P14: how many VMs an update may make unavailable at the same time, and the conditions that stop an update."""

import json
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import MIN_READY, PARTITION, PROGRESS_DEADLINE, REVISION_NAME
from controller.kubevirt.resources import VMS
from controller.pool.members.ledger import outage_of
from controller.pool.plan import plan
from controller.runtime.actions import Create, Delete
from tests.builders import NOW, seconds_ago
from tests.counted import counted
from tests.pool_builders import pool, revision, snapshot, vm_spec, vmi, vms
from tests.pool_healing import announced_for, noted
from tests.pool_updates import BEFORE, during_update, limited_pool, new_vms, old_vmis, restarted

HEALING = {"startUpFailureThreshold": 1}


@pytest.mark.parametrize(
    ("replicas", "most", "allowed"),
    [(4, 1, 1), (4, 3, 3), (4, 9, 4), (4, "25%", 1), (4, "74%", 2), (4, "1%", 1), (4, "100%", 4), (4, None, 4)],
)
def test_p14_at_most_max_unavailable_are_restarted_at_once(replicas, most, allowed):
    owner = limited_pool(most, replicas=replicas)
    machines = new_vms(owner, *range(replicas))
    assert restarted(plan(during_update(owner, machines, vmis=old_vmis(machines)))) == [
        f"web-{n}" for n in range(allowed)
    ]


def plan_beside(of_vm, of_vmi, *, most=1, **fields):
    """The plan for four VMs that must restart, but web-0 has these circumstances. With None, it has no VMI."""
    owner = limited_pool(most, **fields)
    [first], others = new_vms(owner, 0, **of_vm), new_vms(owner, 1, 2, 3)
    running = [] if of_vmi is None else [vmi(first, **of_vmi)]
    return plan(during_update(owner, (first, *others), vmis=[*running, *old_vmis(others)]))


STOPPED = {"strategy": "Halted", "ready": False, "printable": "Stopped"}
LEAVING = {"deleting": True, "finalizers": ("x",)}
MIN_READY_60 = {"annotations": {MIN_READY: "60"}}

BESIDE = {
    # name: (fields of the VM, fields of its VMI, fields of the pool, restarted VMs, seconds to the next reconciliation)
    # A VM that is unready for 30 s is noted, and the progress deadline is 600 s.
    "a VM that is not ready takes a turn": ({}, {"ready": False}, {"most": 2}, ["web-1"], 30),
    "a VM without a VMI takes a turn": ({}, None, {}, [], 30),
    "a VM with a terminating VMI takes a turn": ({}, {"revision": "web-1", "deleting": True}, {}, [], 30),
    "a terminating VM with a ready VMI takes a turn": (LEAVING, {}, {}, [], 599),
    "a VM that its user stopped takes no turn": (STOPPED, None, {}, ["web-1"], None),
    "a VM takes a turn before minReadySeconds": ({}, {"ready_for_s": 20}, MIN_READY_60, [], 40),
    "a VM takes no turn after minReadySeconds": ({}, {"ready_for_s": 60}, MIN_READY_60, ["web-1"], None),
}


@pytest.mark.parametrize(("of_vm", "of_vmi", "fields", "expected", "next_s"), BESIDE.values(), ids=BESIDE)
def test_p14_unavailable_vms_take_a_turn(of_vm, of_vmi, fields, expected, next_s):
    todo = plan_beside(of_vm, of_vmi, **fields)
    assert restarted(todo) == expected
    assert "wait" in todo.held
    assert todo.requeue_after_s == (None if next_s is None else pytest.approx(next_s))


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", ""])
def test_p14_invalid_min_ready_seconds_count_as_zero_and_give_an_event(text):
    todo = plan_beside({}, {"ready_for_s": 1}, annotations={MIN_READY: text})
    assert restarted(todo) == ["web-1"]
    assert [notice.reason for notice in todo.notices] == ["InvalidAnnotation"]


def test_p14_a_rollout_that_makes_progress_is_not_stalled():
    todo = plan_beside({}, {"ready": False, "ready_for_s": 9999}, most=2)
    assert restarted(todo) == ["web-1"]
    assert todo.notices == ()


@pytest.mark.parametrize(("partition", "expected"), [("3", ["web-3"]), ("half", [])])
def test_p14_ordinals_below_the_partition_are_not_restarted_and_an_invalid_partition_stops_the_rollout(
    partition, expected
):
    todo = plan_beside({}, {"revision": "web-1"}, most=4, annotations={PARTITION: partition})
    assert restarted(todo) == expected
    assert expected or todo.actions == ()
    assert [notice.reason for notice in todo.notices] == ([] if expected else ["InvalidAnnotation"])


def test_p14_vmis_that_are_not_ready_come_first_and_do_not_count_towards_the_limit():
    owner = limited_pool()
    machines = new_vms(owner, 0, 1, 2, 3)
    vmis = [*old_vmis(machines[:3]), *old_vmis(machines[3:], ready=False)]
    assert restarted(plan(during_update(owner, machines, vmis=vmis))) == ["web-3"]
    owner = limited_pool(2)
    assert restarted(plan(during_update(owner, machines, vmis=vmis))) == ["web-3", "web-0"]


def test_p14_a_vm_that_the_same_pass_heals_counts_towards_the_limit():
    owner = limited_pool(autohealing=HEALING)
    failing = new_vms(owner, 0, ready=False, failures=1)
    machines = new_vms(owner, 1, 2, 3)
    running = [vmi(failing[0], ready=False), *old_vmis(machines)]
    assert restarted(plan(during_update(owner, (*failing, *machines), vmis=running))) == []
    todo = plan(during_update(announced_for(owner, *failing), (*failing, *machines), vmis=running))
    assert [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMS] == ["web-0"]
    assert restarted(todo) == []


def test_p14_a_vm_that_the_same_pass_heals_counts_only_once():
    owner = limited_pool(2, autohealing=HEALING)
    failing = new_vms(owner, 0, ready=False, failures=1)
    machines = new_vms(owner, 1, 2, 3)
    running = [vmi(failing[0], ready=False), *old_vmis(machines)]
    for announced in (owner, announced_for(owner, *failing)):
        assert restarted(plan(during_update(announced, (*failing, *machines), vmis=running))) == ["web-1"]


def test_p14_a_scale_out_below_the_partition_reads_each_vm_a_few_times():
    owner = pool(replicas=900, annotations={PARTITION: "900"}, spec=vm_spec(image="v2"), generation=2)
    revisions = [revision(pool(), "web-1", number=1), revision(owner, "web-2", number=2)]
    seen = snapshot(owner, vms(owner, *range(600), revision="web-1"), revisions=revisions)
    members, counter = counted(seen.members)
    todo = plan(replace(seen, members=members))
    creates = [json.loads(each.body) for each in todo.actions if isinstance(each, Create)]
    assert {each["metadata"]["labels"][REVISION_NAME] for each in creates if each["kind"] == VMS.kind} == {"web-1"}
    assert len(creates) >= 250
    assert counter.read < 10 * 600


def test_p14_a_stalled_rollout_gives_one_event_at_its_deadline():
    owner = limited_pool(annotations={PROGRESS_DEADLINE: "120"})
    machines = new_vms(owner, 0, 1, 2, 3)

    def after(seconds):
        running = [vmi(machines[0], ready=False, ready_for_s=seconds), *old_vmis(machines[1:])]
        return plan(during_update(noted(owner, machines[0], seconds), machines, vmis=running))

    assert after(50).notices == ()
    assert after(50).requeue_after_s == pytest.approx(70)
    [notice] = after(121).notices
    assert notice.reason == "RolloutStalled"
    assert "web-0" in notice.message
    assert notice.once == after(500).notices[0].once != ""
    assert restarted(after(121)) == []


def test_p14_a_vm_whose_vmi_never_appears_stalls_the_rollout_too():
    owner = limited_pool(annotations={PROGRESS_DEADLINE: "120"})
    lost = new_vms(owner, 0, ready=False, ready_for_s=300)
    machines = new_vms(owner, 1, 2, 3)
    [notice] = plan(during_update(owner, (*lost, *machines), vmis=old_vmis(machines))).notices
    assert notice.reason == "RolloutStalled"


def test_p14_the_progress_deadline_starts_with_the_new_template():
    owner = limited_pool(annotations={PROGRESS_DEADLINE: "120"})
    lost = new_vms(owner, 0, ready=False, ready_for_s=300)
    machines = new_vms(owner, 1, 2, 3)
    new = revision(owner, "web-2", number=2)
    new = replace(new, metadata=replace(new.metadata, creation_timestamp=seconds_ago(50)))
    kept = [revision(BEFORE, "web-1", number=1), new]
    owner = noted(owner, lost[0], 300)
    todo = plan(snapshot(owner, (*lost, *machines), vmis=old_vmis(machines), revisions=kept))
    assert todo.notices == ()
    assert todo.requeue_after_s == pytest.approx(70)


def test_p14_a_vm_that_its_user_stopped_does_not_stall_the_rollout():
    owner = limited_pool()
    stopped = new_vms(owner, 0, strategy="Halted", ready=False, ready_for_s=9999)
    busy = new_vms(owner, 1)
    machines = new_vms(owner, 2, 3)
    running = [vmi(busy[0], ready=False, ready_for_s=5), *old_vmis(machines)]
    assert plan(during_update(owner, (*stopped, *busy, *machines), vmis=running)).notices == ()


def test_p14_no_pass_is_scheduled_for_a_vm_that_no_restart_waits_for():
    owner = limited_pool(2, annotations={MIN_READY: "60"})
    machines = new_vms(owner, 0, 1, 2, 3)
    young = [vmi(machines[0], ready_for_s=20), old_vmis(machines)[1], *(vmi(each) for each in machines[2:])]
    todo = plan(during_update(owner, machines, vmis=young))
    assert restarted(todo) == ["web-1"]
    assert todo.requeue_after_s is None


def test_p14_a_ready_time_in_the_future_counts_as_now():
    owner = limited_pool(annotations={MIN_READY: "60"})
    machines = new_vms(owner, 0)
    ahead = during_update(owner, machines, vmis=[vmi(machines[0], ready=True, ready_for_s=-3600)])
    far = during_update(
        owner, machines, vmis=[vmi(machines[0], ready=True)], now=datetime(9998, 1, 1, tzinfo=NOW.tzinfo)
    )
    assert outage_of(ahead.members, ahead.now, 60).ends_at == NOW + timedelta(seconds=60)
    assert outage_of(far.members, far.now, 60).number == 0
