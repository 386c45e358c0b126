"""P24, P25, P33: busy VMs stay until their work ends, finished VMs can be replaced, and no rule touches claimed VMs."""

import json
from datetime import timedelta
from typing import Any

import pytest

from controller.kubevirt import annotations as names
from controller.kubevirt.busy import busy_reason
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.standby import mark_in
from controller.pool.plan import plan
from controller.pool.rules import JUDGE
from controller.pool.status import next_status, outcome_notices
from controller.replicas.catalogue import Place
from controller.replicas.wrong_annotations import message_of
from controller.runtime.actions import Cause, Create, Delete, Done, Patch
from tests.builders import NOW
from tests.pool_builders import Json, pool, snapshot, vm, vm_spec, vmi, vms
from tests.pool_scenes import DESCENDING, FAILING, OFFLINE, deleted, during_update, entry, heal, healed, healing_pool

PAST, SOON, FAR = "2026-08-01T11:59:59Z", "2026-08-01T14:00:30+02:00", "2999-01-01T00:00:00Z"
ONCE = vm_spec(run_strategy="Once")


def until(time: str) -> dict[str, Any]:
    return {"annotations": {names.BUSY_UNTIL: time}}


def outdated(owner: Any, *ordinals: int, **marks: Any) -> Any:
    """The snapshot of a pool whose VMs have another image than its template."""
    old = vm_spec(image="v0")
    machines = vms(owner, *ordinals, revision="web-1", spec=old, **marks)
    return during_update(owner, machines, before=pool(spec=old), vmis=map(vmi, machines))


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
    owner = pool(deleting=True, scaleInStrategy=OFFLINE)
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


def one_shot(annotations: Json | None = None, **changes: Any) -> Any:
    return pool(**{"spec": ONCE, "annotations": {names.REPLACE_FINISHED: "true", **(annotations or {})}, **changes})


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
    assert deleted(planned(one_shot({names.REPLACE_FINISHED: "false"}), finished=1, running=2)) == []


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
    assert deleted(todo) == []
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
    assert deleted(later) == ([] if early else ["web-0"])
    assert (later.requeue_after_s or 0) == (25 if early else 0)


CLAIM = {names.CLAIMED_BY: "job-123"}
ENDED = {**CLAIM, names.CLAIMED_UNTIL: PAST}
BROKEN: Json = {"ready": False, "ready_for_s": 7200, "printable": "CrashLoopBackOff", "failures": 9}


def scene(owner: Any, claimed: int, free: int, *, limit: int = 0, marks: Json = CLAIM, **state: Any) -> Any:
    """The snapshot of a pool whose first VMs are claimed."""
    machines = vms(owner, *range(claimed), annotations=marks, **state) + vms(owner, *range(claimed, claimed + free))
    return snapshot(owner, machines, max_replicas=limit)


def writes(seen: Any) -> list[str]:
    """The names of the VMs that the plan creates and deletes."""
    return [f"{type(a).__name__} {a.key.name}" for a in plan(seen).actions if isinstance(a, Create | Delete)]


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        (CLAIM, "it is claimed by job-123"),
        ({**CLAIM, names.CLAIMED_UNTIL: SOON}, f"it is claimed by job-123 until {SOON}"),
        ({**CLAIM, names.CLAIMED_UNTIL: "tomorrow"}, "it is claimed by job-123"),
        ({**CLAIM, names.BUSY_UNTIL: SOON}, "it is claimed by job-123"),
        ({**CLAIM, names.BUSY_UNTIL: PAST}, "it is claimed by job-123"),
        ({names.CLAIMED_BY: "two words"}, "it is claimed"),
        ({names.CLAIMED_UNTIL: SOON}, ""),
        (ENDED, ""),
    ],
)
def test_p33_a_claim_lasts_until_its_time_and_without_a_time_for_ever(marks: Json, reason: str):
    found = vm(annotations=marks)
    assert delicate_reason(found, None, NOW) == reason
    assert delicate_reason(found, vmi(found, annotations=marks), NOW) == reason


@pytest.mark.parametrize(
    ("replicas", "free", "expected"),
    [(3, 1, ["Create web-3", "Create web-4"]), (3, 3, []), (0, 0, []), (0, 1, ["Delete web-2"]), (1, 2, ["Delete"])],
    ids=["filled", "full", "nothing is wanted", "the free one leaves", "one of the free ones leaves"],
)
def test_p33_the_pool_has_its_replicas_beside_the_claimed_vms(replicas: int, free: int, expected: Any):
    found = writes(scene(pool(replicas=replicas), 2, free))
    assert len(found) == len(expected)
    assert all(each.startswith(start) for each, start in zip(found, expected, strict=True))
    assert not any(f"web-{ordinal}" in each for each in found for ordinal in range(2))


@pytest.mark.parametrize(
    ("limits", "why"),
    [({"annotations": {names.MAX_CLAIMED: "2"}}, f"{names.MAX_CLAIMED} is 2"), ({"limit": 4}, "--max-replicas is 4")],
    ids=["of the pool", "of the controller"],
)
def test_p33_above_a_limit_claimed_vms_are_not_replaced_and_no_free_vm_is_deleted(limits: Json, why: str):
    owner = pool(replicas=2, annotations=limits.get("annotations"))
    todo = plan(scene(owner, 3, 1, limit=limits.get("limit", 0)))
    assert todo.actions == ()
    assert [each.text for each in todo.waits] == [
        f"3 virtual machines are claimed, so 1 virtual machine waits for the end of a claim, because {why}"
    ]
    assert writes(scene(owner, 3, 2, limit=limits.get("limit", 0))) == []


@pytest.mark.parametrize(
    "owner", [pool(replicas=1), pool(replicas=1, scaleInStrategy=OFFLINE)], ids=["", "keeps disks"]
)
def test_p33_a_vm_whose_claim_has_ended_is_deleted_with_its_disks_and_no_other(owner: Any):
    [delete] = plan(scene(owner, 1, 1, marks=ENDED)).actions
    assert (delete.key.name, delete.foreground, delete.finalizer, delete.owner_uid) == ("web-0", True, "", "")
    [notice] = outcome_notices([Done(delete)])
    assert (notice.message.endswith("its claim by job-123 has ended"), notice.warning) == (True, False)
    assert writes(scene(owner, 1, 1, marks={**ENDED, names.PROTECT: "true"})) == []
    assert writes(scene(owner, 1, 1, marks={**CLAIM, names.CLAIMED_UNTIL: SOON})) == []
    assert plan(scene(owner, 1, 1, marks={**CLAIM, names.CLAIMED_UNTIL: SOON})).requeue_after_s == 30


def test_p33_a_vm_whose_claim_ended_before_it_was_created_stays_and_is_told():
    """A backup has restored it. The command `release` sets a time after the creation."""
    marks = {**CLAIM, names.CLAIMED_UNTIL: "2020-01-01T00:00:00Z"}
    found = plan(scene(pool(replicas=0), 1, 0, marks=marks))
    assert (found.actions, "ended before the VM was created" in found.held) == ((), True)

    owner = one_shot(replicas=0)
    taken = vms(owner, 0, spec=ONCE, annotations=marks, ready=False, printable="Stopped")
    ended = vmi(taken[0], phase="Succeeded", ready=False, entered_s={"Running": 60, "Succeeded": 5})
    assert plan(snapshot(owner, taken, vmis=[ended])).actions == ()


def test_p33_a_vm_whose_claim_has_ended_drains_first_and_stays_if_the_claim_gets_a_new_end():
    owner = pool(replicas=1, annotations={names.DRAIN_SECONDS: "60"})
    [mark] = plan(scene(owner, 1, 1, marks=ENDED)).actions
    assert isinstance(mark, Patch)
    text = json.loads(mark.body)["metadata"]["annotations"][names.DRAINING]
    assert text.startswith("scale-in until 2026-08-01T12:01:00Z")
    [undo] = plan(scene(owner, 1, 1, marks={**CLAIM, names.CLAIMED_UNTIL: SOON, names.DRAINING: text})).actions
    assert isinstance(undo, Patch)
    assert json.loads(undo.body)["metadata"]["annotations"][names.DRAINING] is None


def test_p33_in_a_one_shot_pool_a_claim_ends_with_the_guest():
    owner = one_shot(replicas=1)
    taken = vms(owner, 0, spec=ONCE, annotations=CLAIM, ready=False, printable="Stopped")
    free = vms(owner, 1, spec=ONCE)
    ended = vmi(taken[0], phase="Succeeded", ready=False, entered_s={"Running": 60, "Succeeded": 5})
    seen = snapshot(owner, taken + free, vmis=[ended, vmi(free[0])])
    [delete] = plan(seen).actions
    assert (delete.key.name, delete.cause, delete.foreground) == ("web-0", Cause.FINISHED, True)


def test_p33_a_claimed_vm_is_not_healed_updated_or_told_as_a_problem():
    assert deleted(plan(scene(healing_pool(replicas=1), 1, 1, **BROKEN))) == []
    new = pool(replicas=1, generation=2, spec=vm_spec(image="v2"), maxUnavailable=1)
    old = pool(replicas=1)
    machines = vms(old, 0, annotations=CLAIM) + vms(new, 1, revision="web-2", spec=vm_spec(image="v2"))
    assert plan(during_update(new, machines, before=old)).actions == ()
    status = next_status(scene(pool(replicas=1), 1, 1, **BROKEN), ())
    assert (status.replicas, status.ready_replicas) == (1, 1)
    assert [each.reason for each in status.conditions or () if each.type == "Stalled"] == []


def test_p33_a_time_without_a_claim_is_told_as_wrong():
    owner = pool(replicas=1)
    found = scene(owner, 1, 0, marks={names.CLAIMED_UNTIL: SOON}).wrong_annotations
    text = f"VM web-0: annotation {names.CLAIMED_UNTIL} has no effect without {names.CLAIMED_BY}"
    assert [each.text for each in found] == [text]
    assert scene(owner, 1, 0).wrong_annotations == ()


@pytest.mark.parametrize(
    ("marks", "text"), [({names.STANDBY_STATE: "preparing", "of-a-user": None}, ""), ({}, names.STANDBY_STATE)]
)
def test_p32_only_its_mark_makes_a_new_vm_a_standby_and_not_the_words_of_its_template(marks: Json, text: str) -> None:
    body = {"metadata": {"name": "web-0", "annotations": marks}, "spec": {"cloudInit": text}}
    assert mark_in(json.dumps(body).encode()) == marks.get(names.STANDBY_STATE, "")
