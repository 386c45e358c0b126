"""P29 for sets: VMIs of a stalled rollout return to the last revision that was wholly ready, by themselves and once."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, time_text
from controller.kubevirt import annotations as names
from controller.replicaset.back_off import annotation_of
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status
from controller.runtime.actions import Create, Delete, Patch, Plan
from tests.builders import LABELS, NOW, history, replicaset, revision, seconds_ago, snapshot, vmi
from tests.strategies import template_hash_of

ASKED = {names.ROLLBACK: "stalled", names.PROGRESS_DEADLINE: "300", names.ROLLING_UPDATE: "maxUnavailable=1"}
NAME = "testreplicaset"
LATE_S = 400


def of_template(number: int, **annotations: str) -> Any:
    spec = json.dumps({"domain": {"devices": {}}, "hostname": f"v{number}"}).encode()
    return replicaset(generation=number, spec=spec, annotations={**ASKED, **annotations})


OLD, NEW = of_template(1), of_template(2)
OLD_HASH, NEW_HASH = template_hash_of(OLD), template_hash_of(NEW)
READY = {names.READY_REVISION: f"{NAME}-{OLD_HASH}"}
RETURNED = {**READY, names.ROLLED_BACK: f"{NEW_HASH} to {NAME}-{OLD_HASH} at {time_text(NOW)}"}


def members(hashed: str, *vmis: str, ready: bool = True, late_s: float = LATE_S) -> list[Any]:
    labels = {**LABELS, names.TEMPLATE_HASH: hashed}
    changes = {"ready": ready, "reason": None if ready else "ContainersNotReady"}
    return [vmi(name, owner=NEW, labels=labels, ready_for_s=late_s, age_s=late_s, **changes) for name in vmis]


def seen_with(annotations: dict[str, str], *vmis: Any) -> Any:
    return snapshot(of_template(2, **annotations), vmis, history=history(revision(OLD), revision(NEW)))


def halfway(late_s: float = LATE_S, *, ready: bool = False) -> list[Any]:
    return [*members(OLD_HASH, "a", "b"), *members(NEW_HASH, "c", ready=ready, late_s=late_s)]


def notes(todo: Plan) -> dict[str, Any]:
    bodies = [msgspec.json.decode(each.body) for each in todo.actions if isinstance(each, Patch)]
    return {key: value for each in bodies for key, value in each["metadata"]["annotations"].items()}


def test_p29_a_late_vmi_of_the_new_template_notes_the_return_before_any_step_back():
    todo = plan(seen_with(READY, *halfway()))
    assert notes(todo) == {names.ROLLED_BACK: RETURNED[names.ROLLED_BACK]}
    assert len(todo.actions) == 1
    assert [each.reason for each in todo.notices] == ["RolledBack"]


def with_condition(member: Any, type_: str, status: str, reason: str | None = None) -> Any:
    others = (each for each in member.status.conditions if each.type != type_)
    changed = Condition(type=type_, status=status, reason=reason, last_transition_time=seconds_ago(LATE_S))
    return replace(member, status=replace(member.status, conditions=(*others, changed)))


@pytest.mark.parametrize(
    ("annotations", "vmis"),
    [
        (READY, [*halfway()[:2], with_condition(halfway()[2], "Paused", "True")]),
        (READY, [*halfway()[:2], with_condition(halfway()[2], "Ready", "False")]),
        (READY, [*halfway()[:2], with_condition(halfway()[2], "Ready", "False", "PodTerminating")]),
        (READY, halfway(200)),
        (READY, halfway(ready=True)),
        ({**READY, names.ROLLBACK: "no"}, halfway()),
        ({names.READY_REVISION: f"{NAME}-{NEW_HASH}"}, halfway()),
        ({**READY, names.ROLLING_UPDATE: "none"}, halfway()),
    ],
)
def test_p29_vmis_return_only_if_a_rolling_update_stalls_and_the_set_asks_for_it(annotations: Any, vmis: Any):
    assert names.ROLLED_BACK not in notes(plan(seen_with(annotations, *vmis)))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_p29_a_vmi_on_a_lost_node_hides_no_other_vmi(order: tuple[int, int]):
    hung, other = members(NEW_HASH, "c", "d", ready=False)
    stalled = [(hung, with_condition(other, "Ready", "False"))[each] for each in order]
    assert names.ROLLED_BACK in notes(plan(seen_with(READY, *members(OLD_HASH, "a"), *stalled)))


@pytest.mark.parametrize(
    ("running_s", "unready_s", "returns"),
    [(None, 402, True), (401, 402, True), (500, 400, True), (500, 402, False), (410, 410, False)],
    ids=["never runs", "never ready", "crashes", "evicted", "evicted as soon as it is ready"],
)
def test_p29_a_guest_that_ends_tells_of_its_template_and_an_eviction_does_not(
    running_s: float | None, unready_s: float, returns: bool
):
    """As recorded from KubeVirt: the Pod of each VMI that has failed is terminating."""
    entered_s = {"Scheduling": 550.0, **({"Running": running_s} if running_s else {}), "Failed": 400.0}
    ended: Any = {"phase": "Failed", "ready": False, "reason": "PodTerminating", "ready_for_s": unready_s}
    labels = {**LABELS, names.TEMPLATE_HASH: NEW_HASH}
    failed = vmi("c", owner=NEW, labels=labels, age_s=560, entered_s=entered_s, **ended)
    assert (names.ROLLED_BACK in notes(plan(seen_with(READY, *members(OLD_HASH, "a", "b"), failed)))) == returns


def test_p29_the_way_back_is_a_rolling_update_and_new_vmis_get_the_earlier_template():
    [delete] = plan(seen_with(RETURNED, *halfway())).actions
    assert (type(delete), delete.key.name) == (Delete, "c")
    [create] = plan(seen_with(RETURNED, *members(OLD_HASH, "a", "b"))).actions
    assert isinstance(create, Create)
    assert b'"hostname":"v1"' in create.body.replace(b" ", b"")
    status = next_status(seen_with(RETURNED, *members(OLD_HASH, "a", "b", "c")), ())
    assert (status.printable_status, status.updated_replicas) == ("RolledBack", 0)
    assert (status.current_revision, status.update_revision) == (OLD_HASH, NEW_HASH)


@pytest.mark.parametrize(("data", "why"), [(None, "does not exist any more"), (b'{"template":{}}', "cannot be read")])
def test_p29_without_a_usable_revision_no_vmi_moves_and_an_event_says_why(data: bytes | None, why: str):
    known = history(revision(NEW), *(() if data is None else (replace(revision(OLD), data=Raw(data)),)))
    for annotations in (READY, RETURNED):
        todo = plan(snapshot(of_template(2, **annotations), halfway(), history=known))
        assert todo.actions == ()
        assert why in todo.held
        assert todo.notices[0].reason == "RollbackHeld"
    status = next_status(snapshot(of_template(2, **RETURNED), halfway(), history=known), ())
    assert status.printable_status == "RolledBack"
    assert "no earlier revision is known that was wholly ready" in plan(seen_with({}, *halfway())).held


def test_p29_the_ready_revision_is_noted_before_the_first_vmi_is_replaced_and_its_revision_is_kept():
    todo = plan(seen_with({}, *members(OLD_HASH, "a", "b", "c")))
    assert notes(todo) == READY
    assert [type(each) for each in todo.actions] == [Patch, Delete]
    many = [of_template(number) for number in range(1, 9)]
    owner = replace(many[-1], metadata=replace(many[-1].metadata, annotations={**ASKED, **READY}))
    labels = {**LABELS, names.TEMPLATE_HASH: template_hash_of(owner)}
    current = [vmi(name, owner=owner, labels=labels, ready=name != "a", age_s=20) for name in "abc"]
    pruned = plan(snapshot(owner, current, history=history(*map(revision, many), keep=0))).actions
    assert len(pruned) == 6
    assert f"{NAME}-{OLD_HASH}" not in {each.key.name for each in pruned}


def test_p29_a_set_asks_for_the_pass_that_notes_its_ready_revision():
    again = {names.EARLY_FAILURES: annotation_of(1, seconds_ago(700), seconds_ago(650))}

    def seen(ready_s: float) -> Plan:
        late = members(OLD_HASH, "c", late_s=ready_s)[0]
        late = replace(late, metadata=replace(late.metadata, annotations=again))
        return plan(snapshot(OLD, [*members(OLD_HASH, "a", "b"), late], history=history(revision(OLD))))

    assert (notes(seen(560)), seen(560).requeue_after_s) == ({}, 40)
    assert notes(seen(600)) == READY


def test_p29_the_first_template_of_a_set_has_no_way_back_and_no_event_says_so():
    assert plan(seen_with({}, *members(NEW_HASH, "a", "b", "c", ready=False))).notices == ()


def test_p29_the_revision_to_return_to_is_kept_if_the_template_that_stalled_becomes_ready_too():
    known = history(*map(revision, (OLD, NEW)), keep=0)
    todo = plan(snapshot(of_template(2, **RETURNED), members(NEW_HASH, "a", "b", "c"), history=known))
    assert names.READY_REVISION not in notes(todo)
