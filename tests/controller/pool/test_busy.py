"""P24 and P25: VMs that work for a time. A busy VM stays until its work ends, and a finished VM can be replaced."""

import json
from datetime import timedelta
from typing import Any

import pytest

from controller.kubevirt import annotations as names
from controller.kubevirt.busy import busy_reason
from controller.pool.plan import plan
from controller.pool.rules import JUDGE
from controller.pool.status import outcome_notices
from controller.replicas.catalogue import Place
from controller.replicas.wrong_annotations import message_of
from controller.runtime.actions import Cause, Delete, Done
from tests.builders import NOW
from tests.pool_builders import Json, pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_scenes import FAILING, deleted, deleted_vms, entry, heal, healed, healing_pool

PAST, SOON, FAR = "2026-08-01T11:59:59Z", "2026-08-01T14:00:30+02:00", "2999-01-01T00:00:00Z"
DESCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
ONCE = vm_spec(run_strategy="Once")


def until(time: str) -> dict[str, Any]:
    return {"annotations": {names.BUSY_UNTIL: time}}


def outdated(owner: Any, *ordinals: int, **marks: Any) -> Any:
    """The snapshot of a pool whose VMs have another image than its template."""
    old = vm_spec(image="v0")
    machines = vms(owner, *ordinals, revision="web-1", spec=old, **marks)
    revisions = [revision(pool(generation=1, spec=old), "web-1", number=1), revision(owner, "web-2", number=2)]
    return snapshot(owner, machines, vmis=[vmi(each) for each in machines], revisions=revisions)


@pytest.mark.parametrize(
    ("mark", "reason"),
    {
        PAST: "",
        SOON: f"it is busy until {SOON}",
        **dict.fromkeys(
            (
                "2h",
                "2026-08-01T14:00:30",
                "2026-02-31T14:00:30Z",
                "0000-01-01T00:00:00Z",
                PAST.replace("T", " "),
                PAST.replace("-", "").replace(":", ""),
                PAST.replace("Z", ",5Z"),
                PAST.replace(":59Z", "Z"),
            ),
            f"it is busy: its {names.BUSY_UNTIL} is not a time",
        ),
    }.items(),
)
def test_p24_a_mark_counts_until_its_time_and_a_wrong_value_until_it_is_corrected(mark: str, reason: str):
    """What decides and what reports a wrong value agree."""
    assert busy_reason(vm(**until(mark)), NOW) == reason
    assert ("counts as busy" in message_of(names.BUSY_UNTIL, mark, Place.VM)) == ("not a time" in reason)


def test_p24_a_busy_vm_leaves_last_and_only_after_its_time():
    owner = pool(replicas=1, scaleInStrategy=DESCENDING)
    machines = (*vms(owner, 0, 1), *vms(owner, 2, **until(SOON)))
    assert deleted(plan(snapshot(owner, machines))) == ["web-1", "web-0"]
    smaller = pool(replicas=0, scaleInStrategy=DESCENDING)
    todo = plan(snapshot(smaller, machines[2:]))
    assert (deleted(todo), todo.requeue_after_s) == ([], 30)
    assert [(each.reason, each.message) for each in todo.notices] == [
        ("ScaleInHeld", f"web-2 is surplus, but is not deleted now: it is busy until {SOON}")
    ]
    assert deleted(plan(snapshot(smaller, machines[2:], now=NOW + timedelta(seconds=30)))) == ["web-2"]


@pytest.mark.parametrize(
    ("of_vm", "of_vmi", "busy"),
    [
        ({}, {}, 0),
        (until(SOON), {}, 1),
        ({}, until(SOON), 1),
        (until(SOON), until(FAR), 1),
        (until(PAST), until("2h"), 1),
        (until(PAST), until(PAST), 0),
        (until(SOON), until(SOON) | {"phase": "Succeeded", "ready": False}, 0),
    ],
)
def test_p24_the_busy_vms_of_a_pool_are_counted_until_their_marks_end(of_vm: Json, of_vmi: Json, busy: int):
    for owner in (pool(spec=ONCE), pool(spec=ONCE, paused=True)):
        idle, marked = *vms(owner, 0, spec=ONCE), *vms(owner, 1, spec=ONCE, **of_vm)
        seen = snapshot(owner, (idle, marked), vmis=[vmi(idle), vmi(marked, **of_vmi)])
        assert (seen.marked["busy"], plan(seen).requeue_after_s == 30) == (busy, SOON in str((of_vm, of_vmi)))


def test_p24_a_busy_vm_is_neither_healed_nor_restarted_nor_deleted_with_its_pool():
    failing = healing_pool()
    machines = (*vms(failing, 0, **FAILING, **until(SOON)), *vms(failing, *range(1, 10)))
    assert healed(heal(failing, *machines)) == []
    owner = pool(generation=2, annotations={names.REPLACE_UNREADY_AFTER: "1"})
    assert plan(outdated(owner, 0, 1, 2, **until(SOON))).actions[1:] == ()
    assert len(plan(outdated(owner, 0, 1, 2, **until(PAST))).actions) > 1, "VMs that are not busy are updated"
    owner = pool(deleting=True, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    todo = plan(snapshot(owner, (*vms(owner, 0, **until(SOON)), *vms(owner, 1, finalizers=(names.POOL_FINALIZER,)))))
    assert [(type(each), each.key.name) for each in todo.actions] == [(Delete, "web-1")]
    assert todo.requeue_after_s == 30
    assert todo.held == f"its deletion: web-0 waits: it is busy until {SOON}"


def test_p24_a_vm_that_becomes_busy_after_the_plan_is_not_deleted():
    owner = pool(replicas=0)
    [delete] = plan(snapshot(owner, vms(owner, 0))).actions
    found = {delete.resource: b'{"metadata": {"annotations": {"vmherd.dev/busy-until": "%s"}}}' % SOON.encode()}
    assert JUDGE._replace(now=lambda: NOW).reason(delete, found) == f"it is busy until {SOON}"
    assert JUDGE._replace(now=lambda: NOW + timedelta(minutes=1)).reason(delete, found) == ""


REPLACE = {names.REPLACE_FINISHED: "true"}
OFFLINE = {"proactive": {"statePreservation": "Offline"}}


def one_shot(annotations: Json | None = None, **changes: Any) -> Any:
    return pool(**{"spec": ONCE, "annotations": {**REPLACE, **(annotations or {})}, **changes})


def planned(
    owner: Any, *, finished: int, running: int, phase: str = "Succeeded", ran_s: float = 600, **marks: Any
) -> Any:
    """The plan for a pool whose first VMs have finished, after they ran for `ran_s` seconds."""
    machines = vms(owner, *range(finished), spec=ONCE, ready=False, printable="Stopped", **marks)
    ended = [vmi(each, phase=phase, ready=False, entered_s={"Running": ran_s + 5, phase: 5}) for each in machines]
    others = vms(owner, *range(finished, finished + running), spec=ONCE)
    return plan(snapshot(owner, (*machines, *others), vmis=[*ended, *map(vmi, others)]))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_p25_a_finished_vm_is_deleted_with_its_disks_if_its_successor_would_be_accepted(phase: str):
    [delete] = planned(one_shot(), finished=1, running=2, phase=phase, ran_s=900).actions
    assert (delete.key.name, delete.why) == ("web-0", f"it has finished: {phase}")
    assert (delete.foreground, delete.cause, bool(delete.successor)) == (True, Cause.FINISHED, True)
    [notice] = outcome_notices([Done(delete)])
    assert not notice.warning, "it is the everyday work of the pool"
    assert deleted_vms(planned(one_shot({names.REPLACE_FINISHED: "false"}), finished=1, running=2)) == []


def test_p25_surplus_finished_vms_leave_and_have_no_successor():
    todo = planned(one_shot(replicas=2), finished=2, running=1)
    assert [(each.key.name, bool(each.successor)) for each in todo.actions] == [("web-0", False), ("web-1", True)]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"scaleInStrategy": OFFLINE}, "statePreservation keeps the disks"),
        ({"spec": vm_spec()}, 'the run strategy of the template is "Always"'),
    ],
    ids=["disks", "strategy"],
)
def test_p25_a_pool_that_cannot_replace_finished_vms_says_why(changes: Json, problem: str):
    owner = one_shot(**changes)
    todo = planned(owner, finished=1, running=2)
    assert deleted_vms(todo) == []
    [wrong] = snapshot(owner, ()).wrong_annotations
    assert wrong.text.startswith(f"annotation {names.REPLACE_FINISHED} has no effect: {problem}")
    assert "InvalidAnnotation" in [each.reason for each in todo.notices]


@pytest.mark.parametrize(
    ("phase", "ran_s", "early"), [("Failed", 599, True), ("Succeeded", 59, True), ("Succeeded", 61, False)]
)
def test_p25_an_early_failure_is_noted_before_the_delete_and_the_next_one_waits(phase: str, ran_s: float, early: bool):
    todo = planned(one_shot(), finished=1, running=2, phase=phase, ran_s=ran_s)
    assert [type(each).__name__ for each in todo.actions] == [*(["Patch"] if early else []), "Delete"]
    again = one_shot({names.HEALED: json.dumps({"0": entry(count=3, seconds=15)})})
    later = planned(again, finished=1, running=2, phase=phase, ran_s=ran_s)
    assert deleted_vms(later) == ([] if early else ["web-0"])
    assert (later.requeue_after_s or 0) == (25 if early else 0)
