"""P14: how many VMs an update may make unavailable, and updates in steps with pauses."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import MIN_READY, PARTITION, PARTITION_REVISION, PARTITION_STEP, PROGRESS_DEADLINE
from controller.kubevirt.resources import VMS
from controller.pool.members.ledger import outage_of
from controller.pool.plan import plan
from controller.pool.spec.partition import ALL_ORDINALS, parse_partition, step_note
from controller.runtime.actions import Delete
from tests.builders import NOW, seconds_ago
from tests.pool_builders import intent_of, pool, revision, snapshot, vmi
from tests.pool_healing import announced_for, noted
from tests.pool_updates import BEFORE, during_update, limited_pool, merged, new_vms, old_vmis, old_vms, restarted

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


def test_p14_a_ready_time_in_the_future_counts_as_now():
    owner = limited_pool(annotations={MIN_READY: "60"})
    machines = new_vms(owner, 0)
    ahead = during_update(owner, machines, vmis=[vmi(machines[0], ready=True, ready_for_s=-3600)])
    far = during_update(
        owner, machines, vmis=[vmi(machines[0], ready=True)], now=datetime(9998, 1, 1, tzinfo=NOW.tzinfo)
    )
    assert outage_of(ahead.members, ahead.now, 60).ends_at == NOW + timedelta(seconds=60)
    assert outage_of(far.members, far.now, 60).number == 0


STEPS = "75%,50%:10m,0"


def stepped(text: str = STEPS, replicas: int = 4, **more: Any) -> Any:
    annotations = {PARTITION: text, PARTITION_REVISION: "web-1", **more}
    return limited_pool(replicas, replicas=replicas, annotations=annotations)


@pytest.mark.parametrize(
    ("text", "ordinals", "partitions"),
    [
        ("3", range(9), [3]),
        ("half", range(9), [ALL_ORDINALS]),
        ("90%,50%:10m,0", range(10), [9, 5, 0]),
        ("90%", range(3), [2]),
        ("99%,100%,0%", range(3), [2, ALL_ORDINALS, 0]),
        ("50%", [0, 3, 7, 9], [4]),
        ("90%", [5], [0]),
        ("90%", [], [0]),
    ],
)
def test_p14_a_percentage_keeps_the_vms_with_the_lowest_ordinals_but_not_all(
    text: str, ordinals: Any, partitions: list[int]
):
    steps = parse_partition(pool(annotations={PARTITION: text}).metadata)
    assert [each.partition_of(list(ordinals), list(ordinals)) for each in steps] == partitions


def test_p14_a_step_has_a_pause_in_hours_minutes_and_seconds():
    steps = parse_partition(pool(annotations={PARTITION: " 4:1h30m , 0:5s"}).metadata)
    assert [each.pause for each in steps] == [timedelta(minutes=90), timedelta(seconds=5)]


def seen_in(owner: Any, updated: range, *, ready_for_s: int = 1800, ready: bool = True) -> Any:
    """The pool with the VMs of `updated` on the new template."""
    old = old_vms(owner, *(each for each in range(4) if each not in updated))
    new = new_vms(owner, *updated, ready_for_s=ready_for_s, ready=ready)
    running = [*map(vmi, old), *(vmi(each, ready_for_s=ready_for_s, ready=ready) for each in new)]
    return during_update(owner, (*old, *new), vmis=running)


def step_of(owner: Any, step: int, since_s: float | None = None) -> dict[str, str]:
    since = NOW - timedelta(seconds=since_s) if since_s is not None else None
    return {PARTITION_STEP: step_note(owner.metadata, intent_of(owner).template.digest, step, since)}


def test_p14_the_first_step_updates_the_highest_ordinals_only():
    todo = plan(seen_in(stepped(), range(0)))
    assert merged(todo) == ["web-3"]
    assert "step 1 of 3 updates the ordinals from 3 on; the next step begins when they are ready" in todo.held


def test_p14_the_next_step_is_noted_when_the_vms_of_the_step_are_ready_and_begins_after_that():
    assert merged(plan(seen_in(stepped(), range(3, 4), ready=False))) == []
    todo = plan(seen_in(stepped(**step_of(stepped(), 1)), range(3, 4)))
    assert merged(todo) == []
    [notice] = todo.notices
    assert (notice.reason, notice.message) == ("RolloutStep", "step 2 of 3 of the update begins")
    [note] = todo.actions
    assert step_of(stepped(), 2)[PARTITION_STEP].encode() in note.body
    assert merged(plan(seen_in(stepped(**step_of(stepped(), 2)), range(3, 4)))) == ["web-2"]


def test_p14_a_pause_ends_when_all_vms_of_the_step_have_been_ready_for_its_time():
    owner = stepped(**step_of(stepped(), 2, since_s=600))
    todo = plan(seen_in(owner, range(2, 4), ready_for_s=500))
    assert (todo.actions, todo.requeue_after_s) == ((), 100)
    assert "step 2 of 3 updates the ordinals from 2 on; the next step begins when they have been ready for 600 s" in (
        todo.held
    )
    assert "kubectl vmherd rollout resume" in todo.held
    assert [each.reason for each in plan(seen_in(owner, range(2, 4), ready_for_s=600)).notices] == ["RolloutStep"]


def test_p14_a_pause_begins_when_the_vms_have_the_template_also_after_a_live_change():
    [note] = plan(seen_in(stepped(**step_of(stepped(), 2)), range(2, 4))).actions
    assert step_of(stepped(), 2, since_s=0)[PARTITION_STEP].encode() in note.body
    todo = plan(seen_in(stepped(**step_of(stepped(), 2, since_s=500)), range(2, 4)))
    assert (todo.actions, todo.requeue_after_s) == ((), 100)


def test_p14_a_note_about_another_template_or_other_steps_does_not_count():
    other = {PARTITION_STEP: step_note(stepped().metadata, "0" * 32, 3)}
    assert merged(plan(seen_in(stepped(**other), range(0)))) == ["web-3"]
    changed = stepped("75%,0", **step_of(stepped(), 2))
    assert merged(plan(seen_in(changed, range(0)))) == ["web-3"]
    rubbish = stepped(**{PARTITION_STEP: "rubbish"})
    assert merged(plan(seen_in(rubbish, range(0)))) == ["web-3"]
