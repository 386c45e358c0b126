"""P28, P29: substitutes for VMs on lost nodes, and the return of a stalled rollout to the last ready revision."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.apimachinery.conditions import time_text
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.pool.substitutes import WAITS_FOR_POD
from controller.runtime.actions import Create, Patch, Plan
from tests.builders import NOW, seconds_ago
from tests.plans import reasons
from tests.pool_builders import POOLS, intent_of, pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_replay import Replay, moments
from tests.pool_scenes import DESCENDING, deleted, during_update, limited_pool, merged, new_vms, old_vms

ASKED = {names.ROLLBACK: "stalled", names.PROGRESS_DEADLINE: "300"}
LATE_S, IN_TIME_S = 400, 200
NOT_READY = "ContainersNotReady"


def asking(replicas: int = 4, most: int = 2, **more: Any) -> Any:
    """A pool whose template web-2 is rolled out, and whose VMs were all ready with web-1."""
    annotations = {**ASKED, names.READY_REVISION: "web-1", **more.pop("annotations", {})}
    return limited_pool(most, replicas=replicas, annotations=annotations, **more)


def returned(owner: Any, target: str = "web-1") -> dict[str, str]:
    return {names.ROLLED_BACK: f"{intent_of(owner).template.digest} to {target} at {time_text(NOW)}"}


def halfway(owner: Any, *new: int, late_s: float = LATE_S, ready: bool = False, before: Any = None) -> Any:
    """The pool with these VMs on the new template, for this time."""
    old = old_vms(owner, *(each for each in range(4) if each not in new))
    updated = new_vms(owner, *new, ready=ready, ready_for_s=late_s, printable="Running" if ready else "Starting")
    changes = {"ready": ready, "ready_for_s": late_s, "age_s": late_s, "reason": None if ready else NOT_READY}
    vmis = [*map(vmi, old), *(vmi(each, **changes) for each in updated)]
    more = {} if before is None else {"before": before}
    return during_update(owner, (*old, *updated), vmis=vmis, **more)


def notes(todo: Plan) -> dict[str, Any]:
    patches = [each for each in todo.actions if isinstance(each, Patch) and each.resource is POOLS]
    written = [msgspec.json.decode(each.body)["metadata"]["annotations"] for each in patches]
    return {key: value for each in written for key, value in each.items()}


def test_p29_a_late_vm_of_the_new_template_notes_the_return_before_any_step_back():
    owner = asking()
    todo = plan(halfway(owner, 0, 1))
    assert notes(todo) == returned(owner)
    assert len(todo.actions) == 1
    [notice] = todo.notices
    assert notice.reason == "RolledBack"
    late, returns = "revision web-2 is not ready in time (web-0)", "its VMs return to revision web-1"
    assert notice.message == f"{late}; {returns} until the template changes"


def test_p29_a_return_forgets_the_step_so_that_a_template_that_is_tried_again_begins_with_the_first():
    owner = asking(annotations={names.PARTITION: "3,0", names.PARTITION_STEP: "digest 2 3,0"})
    assert notes(plan(halfway(owner, 3)))[names.PARTITION_STEP] is None


def test_p29_a_ready_revision_is_noted_as_soon_as_its_last_vm_is_available():
    owner = asking(annotations={"vmherd.dev/min-ready-seconds": "60"})
    every = range(4)
    waits = plan(halfway(owner, *every, late_s=40, ready=True))
    assert (notes(waits), waits.requeue_after_s) == ({}, 20)
    assert notes(plan(halfway(owner, *every, late_s=60, ready=True))) == {names.READY_REVISION: "web-2"}


NOT_YET = {
    "no annotation asks": (asking(annotations={names.ROLLBACK: "never"}), LATE_S, False),
    "in time": (asking(), IN_TIME_S, False),
    "ready": (asking(), LATE_S, True),
    "the rollout was whole before": (asking(annotations={names.READY_REVISION: "web-2"}), LATE_S, False),
}


@pytest.mark.parametrize(("owner", "late_s", "ready"), NOT_YET.values(), ids=NOT_YET)
def test_p29_vms_return_only_if_a_rollout_stalls_and_the_pool_asks_for_it(owner: Any, late_s: float, ready: bool):
    todo = plan(halfway(owner, 0, 1, late_s=late_s, ready=ready))
    assert names.ROLLED_BACK not in notes(todo)
    assert "RolledBack" not in {each.reason for each in todo.notices}


def test_p29_the_first_template_of_a_pool_has_no_way_back_and_no_event_says_so():
    owner = limited_pool(annotations=ASKED)
    assert "RollbackHeld" not in {each.reason for each in plan(halfway(owner, 0, 1, 2, 3)).notices}


def test_p29_the_way_back_is_an_update_within_the_limits_and_new_vms_get_the_earlier_template():
    owner = asking(replicas=5, most=1, annotations=returned(asking()))
    seen = halfway(owner, 1, 3)
    [create] = [each for each in plan(seen).actions if isinstance(each, Create)]
    assert b'"image":"v1"' in create.body
    assert not [each for each in plan(seen).actions if each.resource is CONTROLLER_REVISIONS]
    below = {names.PARTITION: "9", names.PARTITION_REVISION: "web-2", **returned(asking())}
    seen = halfway(asking(replicas=5, annotations=below), 0, 1, 2, 3)
    [create] = [each for each in plan(seen).actions if isinstance(each, Create)]
    assert b'"image":"v1"' in create.body
    owner = asking(most=1, annotations=returned(asking()))
    assert merged(plan(halfway(owner, 1, 3))) == ["web-1", "web-3"], "they are not ready anyway"
    assert merged(plan(halfway(owner, 1, 3, ready=True))) == ["web-1"]
    status = next_status(halfway(owner, 1, 3, ready=True), ())
    assert (status.printable_status, status.updated_replicas, status.update_revision) == ("RolledBack", 2, "web-2")
    assert status.current_revision == "web-1"


@pytest.mark.parametrize(("cap", "deleted"), [(None, False), ("restart", False), ("recreate", True)])
def test_p29_a_return_deletes_no_disk_unless_the_pool_says_so(cap: str | None, deleted: bool):
    before, after = vm_spec(disks=["root"]), vm_spec(disks=["root"], storage_class="slow")
    cap_note = {names.MOST_DISRUPTIVE: cap} if cap else {}
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

    owner = asking(annotations={names.READY_REVISION: target})
    todo = plan(seen(owner))
    assert names.ROLLED_BACK not in notes(todo)
    assert [each.message for each in todo.notices if each.reason == "RollbackHeld"] == [
        f"revision web-2 is not ready in time (web-0), and no VM returns by itself: {why}"
    ]
    if target:
        owner = asking(annotations=returned(owner, target))
        todo = plan(seen(owner))
        held = f"its VMs have returned to revision {target}, but {why}; change the template"
        assert (todo.actions, todo.held) == ((), held)
        assert next_status(seen(owner), ()).printable_status == "RolledBack"


def test_p29_a_return_that_stalls_too_waits_and_says_so():
    owner = asking(most=1, annotations=returned(asking()))
    late = {"ready": False, "ready_for_s": LATE_S}
    back, rest = old_vms(owner, 0, printable="Starting", **late), new_vms(owner, 1, 2, 3)
    seen = during_update(owner, (*back, *rest), vmis=[vmi(back[0], age_s=LATE_S, **late), *map(vmi, rest)])
    status = next_status(seen, ())
    assert [each.reason for each in status.conditions or () if each.type == "Stalled"] == ["RolledBack"]
    assert plan(seen).actions == ()
    assert (status.problem or "").startswith("revision web-2 was not ready in time; its VMs return to revision web-1")


def test_p29_broken_vms_return_also_if_vms_with_the_earlier_template_are_not_ready():
    owner = asking(most=1, annotations=returned(asking()))
    late = {"ready": False, "ready_for_s": LATE_S}
    vms = [*old_vms(owner, 0, 3, printable="Starting", **late), *new_vms(owner, 1, 2, printable="Starting", **late)]
    todo = plan(during_update(owner, vms, vmis=[vmi(each, age_s=LATE_S, **late) for each in vms]))
    assert merged(todo) == ["web-1", "web-2"]


def test_p29_a_new_template_or_the_end_of_the_wish_removes_the_notes():
    owner = asking(annotations={names.ROLLED_BACK: "f00 to web-1"})
    todo = plan(halfway(owner, 0, ready=True))
    assert notes(todo) == {names.ROLLED_BACK: None}
    assert merged(todo)
    owner = limited_pool(annotations={names.READY_REVISION: "web-1", names.ROLLED_BACK: "f00 to web-1"})
    assert notes(plan(halfway(owner, 0, ready=True))) == {names.READY_REVISION: None, names.ROLLED_BACK: None}


AFTER = {names.SUBSTITUTE_LOST_AFTER: "300"}
MARK = {names.SUBSTITUTE: "true"}
SILENT: dict[str, Any] = {"ready": False, "reason": None, "ready_for_s": 400}
"""What KubeVirt shows of a VMI while its node does not answer."""

BOOTING: dict[str, Any] = {**SILENT, "phase": "Scheduling", "reason": "GuestNotRunning"}

TERMINATING: dict[str, Any] = {"ready": False, "reason": "PodTerminating", "ready_for_s": 400}
"""What KubeVirt shows after Kubernetes has deleted the Pod."""


def seen(owner: Any, lost: dict[int, dict[str, Any]], *ordinals: int, **more: Any) -> Any:
    """The snapshot of a pool whose VMs `lost` are not ready."""
    marked = more.pop("marked", {})
    states = [{"ready": n not in lost, "ready_for_s": since(lost, n), "annotations": marked.get(n)} for n in ordinals]
    machines = [vm(f"web-{n}", owner=owner, **state) for n, state in zip(ordinals, states, strict=True)]
    instances = [vmi(each, **lost.get(n, {})) for each, n in zip(machines, ordinals, strict=True)]
    return snapshot(owner, machines, vmis=instances, **more)


def since(lost: dict[int, dict[str, Any]], ordinal: int) -> float:
    """For how many seconds the VM has been ready or unready."""
    return float(lost.get(ordinal, {}).get("ready_for_s", 1800))


def created(todo: Any) -> dict[str, bool]:
    """The names of the VMs that a plan creates, and whether each is a substitute."""
    bodies = {each.key.name: json.loads(each.body)["metadata"] for each in todo.actions if isinstance(each, Create)}
    return {name: names.SUBSTITUTE in (meta.get("annotations") or {}) for name, meta in bodies.items()}


@pytest.mark.parametrize(
    ("sign", "wait_s"),
    [
        (SILENT, -100),
        ({**SILENT, "ready_for_s": 250}, 50),
        (TERMINATING, -100),
        ({**TERMINATING, "phase": "Scheduled"}, -100),
        ({**SILENT, "phase": "Scheduled"}, None),
        ({**SILENT, "reason": "ContainersNotReady"}, None),
        ({**SILENT, "reason": "GuestNotRunning"}, None),
        ({**TERMINATING, "phase": "Failed"}, None),
    ],
)
def test_p28_a_vm_is_lost_if_its_node_does_not_answer_and_not_if_it_is_only_unready(sign: Any, wait_s: Any):
    owner = pool(annotations=AFTER)
    for late_s, is_lost in ((-1, False), (0, True)) if wait_s is not None else ((600, False),):
        todo = plan(seen(owner, {1: sign}, 0, 1, 2, now=NOW + timedelta(seconds=(wait_s or 0) + late_s)))
        assert created(todo) == ({"web-3": True} if is_lost else {})
        assert reasons(todo) == (["VMLost"] if is_lost else [])
        assert not deleted(todo)
    late = NOW + timedelta(seconds=600)
    assert not created(plan(seen(pool(), {1: sign}, 0, 1, 2, now=late))), "without the annotation nothing changes"


def test_p28_a_guest_that_shuts_down_slowly_is_not_lost_before_its_grace_period_has_passed():
    spec = vm_spec()
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = 600
    owner = pool(spec=spec, annotations=AFTER)
    machines = [vm(f"web-{n}", owner=owner, spec=spec, ready=n != 1) for n in range(3)]
    states = [vmi(each, **(TERMINATING if each.metadata.name == "web-1" else {})) for each in machines]
    for seconds, expected in ((259, {}), (260, {"web-3": True})):
        assert created(plan(snapshot(owner, machines, vmis=states, now=NOW + timedelta(seconds=seconds)))) == expected


@pytest.mark.parametrize(
    ("fields", "substitutes", "held"),
    [
        ({"maxUnavailable": 1}, ["web-6"], "lost: 2 lost virtual machines wait for a substitute, because maxUnav"),
        ({"maxUnavailable": 2}, ["web-6", "web-7"], "lost: 1 lost virtual machine waits for a substitute"),
        ({}, ["web-6", "web-7", "web-8"], ""),
        ({"annotations": AFTER | {names.MAX_UNHEALTHY: "2"}}, [], "lost: 3 virtual machines are lost at the same time"),
        ({"annotations": {names.SUBSTITUTE_LOST_AFTER: "0"}}, [], ""),
    ],
)
def test_p28_there_are_at_most_max_unavailable_substitutes_and_none_if_too_many_vms_are_lost(
    fields: Any, substitutes: list[str], held: str
):
    owner = pool(**{"replicas": 6, "annotations": AFTER, **fields})
    todo = plan(seen(owner, dict.fromkeys((1, 3, 5), SILENT), *range(6)))
    assert sorted(created(todo)) == substitutes
    assert todo.held.startswith(held)
    assert ("SubstitutesHeld" in reasons(todo)) is ("at the same time" in held)


@pytest.mark.parametrize(
    ("lost", "fields", "marked", "leave", "held"),
    [
        ({1: SILENT}, {}, {3: MARK}, [], ""),
        ({1: {**TERMINATING, "ready_for_s": 1}}, {}, {3: MARK}, [], ""),
        ({}, {}, {3: MARK}, ["web-3"], ""),
        ({}, {}, {2: MARK}, ["web-2"], ""),
        ({1: BOOTING}, {}, {3: MARK}, [], "1 substitute virtual"),
        ({}, {}, {3: {**MARK, names.PROTECT: "true"}}, [], "1 surplus virtual machine may not be deleted"),
        ({}, {}, {3: {**MARK, names.BUSY_UNTIL: "2999-01-01T00:00:00Z"}}, [], "scale-in: web-3 waits: it is busy"),
        ({1: SILENT}, {"replicas": 2}, {3: MARK}, ["web-3"], ""),
        ({1: SILENT}, {"replicas": 1}, {0: MARK}, ["web-0", "web-3"], ""),
        ({1: SILENT}, {"replicas": 0}, {3: MARK}, ["web-0", "web-2", "web-3"], ""),
        ({1: SILENT, 2: SILENT}, {"replicas": 1}, {3: MARK}, ["web-3"], "lost: 2 virtual machines are lost at"),
    ],
)
def test_p28_the_substitute_leaves_first_and_a_lost_vm_never(
    lost: Any, fields: Any, marked: Any, leave: list[str], held: str
):
    owner = pool(**{"annotations": AFTER, "scaleInStrategy": DESCENDING, **fields})
    todo = plan(seen(owner, lost, 0, 1, 2, 3, marked=marked))
    assert sorted(deleted(todo)) == leave
    assert held in todo.held
    assert not created(todo)


def test_p28_healing_and_updates_leave_a_lost_vm_alone():
    owner = limited_pool(replicas=3, annotations={**AFTER, names.REPLACE_UNREADY_AFTER: "60"})
    [lost], [substitute] = vms(owner, 1, ready=False, spec=vm_spec()), vms(owner, 3, spec=vm_spec(), annotations=MARK)
    machines = [*vms(owner, 0, 2, spec=vm_spec()), lost, substitute]
    states = [vmi(each, **(SILENT if each is lost else {})) for each in machines]
    todo = plan(during_update(owner, machines, vmis=states))
    changed = {each.key.name for each in todo.actions if each.resource in (VMS, VMIS)}
    assert len(changed) == 1, "the substitute is there, so one other VM may be unavailable"
    assert changed.isdisjoint({"web-1"})
    assert "web-1 waits: its node does not answer" in todo.held


@pytest.mark.parametrize(("ordinals", "word"), [((0, 1, 2), "Scaling"), ((0, 1, 2, 3), "Running")])
def test_p28_a_pool_whose_lost_vms_have_substitutes_is_as_its_spec_asks_and_names_them(
    ordinals: tuple[int, ...], word: str
):
    owner = pool(annotations=AFTER)
    sign = {**SILENT, "ready_for_s": 4000 if len(ordinals) == 4 else 400}
    status = next_status(seen(owner, {1: sign}, *ordinals, marked={3: MARK}), ())
    since = time_text(seconds_ago(sign["ready_for_s"]))
    told = f"web-1: NodeLost, its node node-1 does not answer since {since}; {WAITS_FOR_POD}"
    assert (status.printable_status, status.problem) == (word, told)
    assert (status.replicas, status.ready_replicas) == (len(ordinals), len(ordinals) - 1)
    assert "Stalled" not in {each.type for each in status.conditions or ()}


def test_p28_a_vm_on_a_lost_node_of_a_real_cluster_gets_one_substitute_and_is_left_alone():
    replay = Replay(pool(replicas=1, annotations={names.SUBSTITUTE_LOST_AFTER: "25"}))
    lost_s = []
    for moment in moments("vm-node-lost", replay.owner):
        todo = replay.run_pass(moment)
        assert not deleted(todo)
        lost_s += [moment.seconds] if created(todo) == {"web-1": True} else []
    stopped_s, fenced_s = 5.399, 76.179
    assert stopped_s + 10 + 24 < lost_s[0] < stopped_s + 10 + 27, "after the grace period of the node monitor"
    assert fenced_s < lost_s[-1] < fenced_s + 3, "until the Pod is gone, also while it is Terminating"
