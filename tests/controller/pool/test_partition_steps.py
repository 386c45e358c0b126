"""P14: an update in steps, with pauses, from the annotation `vmherd.dev/partition`."""

from datetime import timedelta
from typing import Any

import pytest

from controller.kubevirt.annotations import PARTITION, PARTITION_REVISION, PARTITION_STEP
from controller.pool.plan import plan
from controller.pool.rollout.partition_steps import waiting_step
from controller.pool.spec.partition import ALL_ORDINALS, parse_partition, step_note
from controller.pool.status import next_status
from controller.runtime.actions import Create
from tests.builders import NOW
from tests.pool_builders import intent_of, pool, situation_of, vmi
from tests.pool_updates import during_update, limited_pool, merged, new_vms, old_vms

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


def test_p14_an_undo_to_the_template_below_the_partition_takes_no_steps():
    owner = stepped(**{PARTITION_REVISION: "web-2"})
    assert merged(plan(seen_in(owner, range(0, 2)))) == ["web-2", "web-3"]


def test_p14_a_missing_vm_below_the_partition_comes_back_with_the_earlier_template_and_begins_no_step():
    owner = stepped("1:10m,0", replicas=2)
    machines = new_vms(owner, 1, ready_for_s=60)
    todo = plan(during_update(owner, machines, vmis=[vmi(each, ready_for_s=60) for each in machines]))
    [create] = [each for each in todo.actions if isinstance(each, Create) and each.key.name == "web-0"]
    assert b'"kubevirt.io/vm-pool-revision-name":"web-1"' in create.body
    assert situation_of(during_update(owner, machines)).target.step == 1


def test_p17_a_pool_between_two_steps_is_updating():
    status = next_status(seen_in(stepped(**step_of(stepped(), 2)), range(2, 4), ready_for_s=5), ())
    assert status.printable_status == "Updating"
    assert waiting_step(situation_of(seen_in(stepped("3"), range(3, 4)))) == "", "a single step has no next one"
