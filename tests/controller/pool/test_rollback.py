"""P29: VMs of a stalled rollout return to the last revision that was wholly ready, by themselves and once."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt.annotations import (
    MOST_DISRUPTIVE,
    PROGRESS_DEADLINE,
    READY_REVISION,
    ROLLBACK,
    ROLLED_BACK,
)
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.runtime.actions import Create, Patch, Plan
from tests.pool_builders import POOLS, intent_of, pool, revision, snapshot, vm_spec, vmi
from tests.pool_updates import during_update, limited_pool, merged, new_vms, old_vms

ASKED = {ROLLBACK: "stalled", PROGRESS_DEADLINE: "300"}
LATE_S, IN_TIME_S = 400, 200
NOT_READY = "ContainersNotReady"


def asking(replicas: int = 4, most: int = 2, **more: Any) -> Any:
    """A pool whose template web-2 is rolled out, and whose VMs were all ready with web-1."""
    annotations = {**ASKED, READY_REVISION: "web-1", **more.pop("annotations", {})}
    return limited_pool(most, replicas=replicas, annotations=annotations, **more)


def returned(owner: Any, target: str = "web-1") -> dict[str, str]:
    return {ROLLED_BACK: f"{intent_of(owner).template.digest} to {target}"}


def halfway(owner: Any, *new: int, late_s: float = LATE_S, ready: bool = False, before: Any = None) -> Any:
    """The pool with these VMs on the new template, for this time."""
    old = old_vms(owner, *(each for each in range(4) if each not in new))
    updated = new_vms(owner, *new, ready=ready, ready_for_s=late_s, printable="Running" if ready else "Starting")
    changes = {"ready": ready, "ready_for_s": late_s, "age_s": late_s, "reason": None if ready else NOT_READY}
    vmis = [*map(vmi, old), *(vmi(each, **changes) for each in updated)]
    more = {} if before is None else {"before": before}
    return during_update(owner, (*old, *updated), vmis=vmis, **more)


def notes(todo: Plan) -> dict[str, Any]:
    patches = (each for each in todo.actions if isinstance(each, Patch) and each.resource is POOLS)
    return {
        key: value
        for each in patches
        for key, value in msgspec.json.decode(each.body)["metadata"]["annotations"].items()
    }


def test_p29_a_late_vm_of_the_new_template_notes_the_return_before_any_step_back():
    owner = asking()
    todo = plan(halfway(owner, 0, 1))
    assert notes(todo) == returned(owner)
    assert len(todo.actions) == 1
    [notice] = todo.notices
    assert notice.reason == "RolledBack"
    assert (
        notice.message
        == "revision web-2 is not ready in time (web-0); its VMs return to revision web-1 until the template changes"
    )


def test_p29_a_ready_revision_is_noted_as_soon_as_its_last_vm_is_available():
    owner = asking(annotations={"vmherd.dev/min-ready-seconds": "60"})
    every = range(4)
    waits = plan(halfway(owner, *every, late_s=40, ready=True))
    assert (notes(waits), waits.requeue_after_s) == ({}, 20)
    assert notes(plan(halfway(owner, *every, late_s=60, ready=True))) == {READY_REVISION: "web-2"}


NOT_YET = {
    "nobody asks": (asking(annotations={ROLLBACK: "never"}), LATE_S, False),
    "in time": (asking(), IN_TIME_S, False),
    "ready": (asking(), LATE_S, True),
    "the rollout was whole before": (asking(annotations={READY_REVISION: "web-2"}), LATE_S, False),
}


@pytest.mark.parametrize(("owner", "late_s", "ready"), NOT_YET.values(), ids=NOT_YET)
def test_p29_vms_return_only_if_a_rollout_stalls_and_the_pool_asks_for_it(owner: Any, late_s: float, ready: bool):
    todo = plan(halfway(owner, 0, 1, late_s=late_s, ready=ready))
    assert ROLLED_BACK not in notes(todo)
    assert "RolledBack" not in {each.reason for each in todo.notices}


@pytest.mark.parametrize(
    ("reason", "paused", "returns"),
    [(NOT_READY, False, True), (NOT_READY, True, False), (None, False, False), ("PodTerminating", False, False)],
)
def test_p29_a_paused_vm_or_a_node_without_answer_lets_no_vm_return(reason: str | None, paused: bool, returns: bool):
    owner = asking()
    [vm] = new_vms(owner, 0, ready=False, ready_for_s=LATE_S)
    instance = vmi(vm, ready=False, reason=reason, ready_for_s=LATE_S, age_s=LATE_S)
    more = (Condition(type="Paused", status="True"),) if paused else ()
    instance = replace(instance, status=replace(instance.status, conditions=(*instance.status.conditions, *more)))
    old = old_vms(owner, 1, 2, 3)
    todo = plan(during_update(owner, (vm, *old), vmis=[instance, *map(vmi, old)]))
    assert (ROLLED_BACK in notes(todo)) == returns


def test_p29_the_first_template_of_a_pool_has_no_way_back_and_no_event_says_so():
    owner = limited_pool(annotations=ASKED)
    assert "RollbackHeld" not in {each.reason for each in plan(halfway(owner, 0, 1, 2, 3)).notices}


def test_p29_the_way_back_is_an_update_within_the_limits_and_new_vms_get_the_earlier_template():
    owner = asking(replicas=5, most=1, annotations=returned(asking()))
    seen = halfway(owner, 1, 3)
    [create] = [each for each in plan(seen).actions if isinstance(each, Create)]
    assert b'"image":"v1"' in create.body
    assert not [each for each in plan(seen).actions if each.resource is CONTROLLER_REVISIONS]
    owner = asking(most=1, annotations=returned(asking()))
    assert merged(plan(halfway(owner, 1, 3))) == ["web-1", "web-3"], "they are not ready anyway"
    assert merged(plan(halfway(owner, 1, 3, ready=True))) == ["web-1"]
    status = next_status(halfway(owner, 1, 3, ready=True), ())
    assert (status.printable_status, status.updated_replicas, status.update_revision) == ("RolledBack", 2, "web-2")
    assert status.current_revision == "web-1"


@pytest.mark.parametrize(("cap", "deleted"), [(None, False), ("restart", False), ("recreate", True)])
def test_p29_a_return_deletes_no_disk_unless_the_pool_says_so(cap: str | None, deleted: bool):
    before, after = vm_spec(disks=["root"]), vm_spec(disks=["root"], storage_class="slow")
    cap_note = {MOST_DISRUPTIVE: cap} if cap else {}
    owner = asking(spec=after, annotations={**cap_note, **returned(asking(spec=after))})
    todo = plan(halfway(owner, 0, 1, ready=True, before=pool(spec=before)))
    assert bool(todo.actions) == deleted
    assert ("its disks would be deleted" in todo.held) == (not deleted)


UNUSABLE = {
    "it was never noted": ("", "no earlier revision is known that was wholly ready"),
    "it is gone": ("web-0", "revision web-0 does not exist any more"),
    "it cannot be read": ("web-9", "revision web-9 cannot be read"),
    "the selector has changed": ("web-8", "spec.selector does not match revision web-8"),
}


@pytest.mark.parametrize(("target", "why"), UNUSABLE.values(), ids=UNUSABLE)
def test_p29_without_a_usable_revision_nothing_moves_and_an_event_says_why(target: str, why: str):
    def seen(owner: Any) -> Any:
        found = halfway(owner, 0, 1)
        broken = revision(pool(spec={}), "web-9", number=9)
        other = revision(pool(labels={"app": "other"}), "web-8", number=8)
        vms = [each.vm for each in found.members]
        vmis = [each.vmi for each in found.members if each.vmi is not None]
        return snapshot(owner, vms, vmis=vmis, revisions=[*found.revisions, broken, other])

    owner = asking(annotations={READY_REVISION: target})
    todo = plan(seen(owner))
    assert ROLLED_BACK not in notes(todo)
    assert [each.message for each in todo.notices if each.reason == "RollbackHeld"] == [
        f"revision web-2 is not ready in time (web-0), and no VM returns by itself: {why}"
    ]
    if target:
        owner = asking(annotations=returned(owner, target))
        todo = plan(seen(owner))
        assert (todo.actions, todo.held) == (
            (),
            f"its VMs have returned to revision {target}, but {why}; change the template",
        )
        assert next_status(seen(owner), ()).printable_status == "RolledBack"


def test_p29_a_new_template_or_the_end_of_the_wish_removes_the_notes():
    owner = asking(annotations={ROLLED_BACK: "f00 to web-1"})
    todo = plan(halfway(owner, 0, ready=True))
    assert notes(todo) == {ROLLED_BACK: None}
    assert merged(todo)
    owner = limited_pool(annotations={READY_REVISION: "web-1", ROLLED_BACK: "f00 to web-1"})
    assert notes(plan(halfway(owner, 0, ready=True))) == {READY_REVISION: None, ROLLED_BACK: None}
