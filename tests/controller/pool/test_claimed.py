"""P33: claimed VMs stay members, no rule touches them, and others take their place until a claim ends."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kubevirt import annotations as names
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.standby import mark_in
from controller.pool.plan import plan
from controller.pool.status import next_status, outcome_notices
from controller.runtime.actions import Cause, Create, Delete, Done, Patch
from tests.builders import NOW
from tests.pool_builders import Json, pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_scenes import deleted_vms, healing_pool

PAST, SOON = "2026-08-01T11:59:59Z", "2026-08-01T12:00:30Z"
CLAIM = {names.CLAIMED_BY: "job-123"}
ENDED = {**CLAIM, names.CLAIMED_UNTIL: PAST}
OFFLINE = {"proactive": {"statePreservation": "Offline"}}
BROKEN: Json = {"ready": False, "ready_for_s": 7200, "printable": "CrashLoopBackOff", "failures": 9}


def scene(owner: Any, claimed: int, free: int, *, limit: int = 0, marks: Json = CLAIM, **state: Any) -> Any:
    """The snapshot of a pool whose first VMs are claimed."""
    machines = vms(owner, *range(claimed), annotations=marks, **state) + vms(owner, *range(claimed, claimed + free))
    seen = snapshot(owner, machines)
    return replace(seen, limits=replace(seen.limits, max_replicas=limit))


def writes(seen: Any) -> list[str]:
    """The names of the VMs that the plan creates and deletes."""
    return [
        f"{type(each).__name__} {each.key.name}" for each in plan(seen).actions if isinstance(each, Create | Delete)
    ]


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        (CLAIM, "it is claimed by job-123"),
        ({**CLAIM, names.CLAIMED_UNTIL: SOON}, f"it is claimed by job-123 until {SOON}"),
        ({**CLAIM, names.CLAIMED_UNTIL: "tomorrow"}, "it is claimed by job-123"),
        ({**CLAIM, names.BUSY_UNTIL: SOON}, f"it is busy until {SOON}"),
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
    ("replicas", "claimed", "free", "expected"),
    [
        (3, 2, 1, ["Create web-3", "Create web-4"]),
        (3, 2, 3, []),
        (0, 2, 0, []),
        (0, 2, 1, ["Delete web-2"]),
        (1, 2, 2, ["Delete"]),
    ],
    ids=["filled", "full", "nothing is wanted", "the free one leaves", "one of the free ones leaves"],
)
def test_p33_the_pool_has_its_replicas_beside_the_claimed_vms(replicas: int, claimed: int, free: int, expected: Any):
    found = writes(scene(pool(replicas=replicas), claimed, free))
    assert len(found) == len(expected)
    assert all(each.startswith(start) for each, start in zip(found, expected, strict=True))
    assert not any(f"web-{ordinal}" in each for each in found for ordinal in range(claimed))


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

    once = vm_spec(run_strategy="Once")
    owner = pool(replicas=0, spec=once, annotations={names.REPLACE_FINISHED: "true"})
    taken = vms(owner, 0, spec=once, annotations=marks, ready=False, printable="Stopped")
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
    once = vm_spec(run_strategy="Once")
    owner = pool(replicas=1, spec=once, annotations={names.REPLACE_FINISHED: "true"})
    taken, free = (
        vms(owner, 0, spec=once, annotations=CLAIM, ready=False, printable="Stopped"),
        vms(owner, 1, spec=once),
    )
    ended = vmi(taken[0], phase="Succeeded", ready=False, entered_s={"Running": 60, "Succeeded": 5})
    seen = snapshot(owner, taken + free, vmis=[ended, vmi(free[0])])
    [delete] = plan(seen).actions
    assert (delete.key.name, delete.cause, delete.foreground) == ("web-0", Cause.FINISHED, True)


def test_p33_a_claimed_vm_is_not_healed_updated_or_told_as_a_problem():
    assert deleted_vms(plan(scene(healing_pool(replicas=1), 1, 1, **BROKEN))) == []
    new = pool(replicas=1, generation=2, spec=vm_spec(image="v2"), maxUnavailable=1)
    old = pool(replicas=1)
    machines = vms(old, 0, annotations=CLAIM) + vms(new, 1, revision="web-2", spec=vm_spec(image="v2"))
    seen = snapshot(new, machines, revisions=[revision(old, number=1), revision(new, "web-2", number=2)])
    assert plan(seen).actions == ()
    status = next_status(scene(pool(replicas=1), 1, 1, **BROKEN), ())
    assert (status.replicas, status.ready_replicas) == (1, 1)
    assert [each.reason for each in status.conditions or () if each.type == "Stalled"] == []


def test_p33_a_time_without_a_claim_is_told_as_wrong():
    owner = pool(replicas=1)
    found = scene(owner, 1, 0, marks={names.CLAIMED_UNTIL: SOON}).wrong_annotations
    assert [each.text for each in found] == [
        f"VM web-0: annotation {names.CLAIMED_UNTIL} has no effect without {names.CLAIMED_BY}"
    ]
    assert scene(owner, 1, 0).wrong_annotations == ()


@pytest.mark.parametrize(
    ("marks", "text"), [({names.STANDBY_STATE: "preparing", "of-a-user": None}, ""), ({}, names.STANDBY_STATE)]
)
def test_p32_only_its_mark_makes_a_new_vm_a_standby_and_not_the_words_of_its_template(marks: Json, text: str) -> None:
    body = {"metadata": {"name": "web-0", "annotations": marks}, "spec": {"cloudInit": text}}
    assert mark_in(json.dumps(body).encode()) == marks.get(names.STANDBY_STATE, "")
