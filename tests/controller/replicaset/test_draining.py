"""P26: a VMI of a set that runs drains before a scale-in, an update or a replacement deletes it."""

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import (
    DRAIN_SECONDS,
    DRAINED,
    DRAINING,
    EARLY_FAILURES,
    IN_SERVICE,
    REPLACE_UNREADY_AFTER,
    ROLLING_UPDATE,
)
from controller.kubevirt.resources import VMIS
from controller.replicas.draining import Mark
from controller.replicaset.plan import plan
from controller.runtime.actions import Create, Delete, Patch
from tests.builders import LABELS, NOW, replicaset, snapshot, vmi

DRAIN = {DRAIN_SECONDS: "60", ROLLING_UPDATE: "maxUnavailable=1", REPLACE_UNREADY_AFTER: "60"}
END = NOW + timedelta(seconds=60)
OLD = {**LABELS, "vmherd.dev/template-hash": "older"}
UNREADY: dict[str, Any] = {"ready": False, "ready_for_s": 999, "entered_s": {"Running": 999}}
CAUSES: dict[str, tuple[int, dict[str, Any]]] = {
    "scale-in": (0, {}),
    "update": (1, {"labels": OLD}),
    "healing": (1, UNREADY),
}


def planned(replicas: int, *vmis: Any, now: Any = NOW, **changes: Any) -> Any:
    return plan(snapshot(replicaset(replicas=replicas, annotations=DRAIN, **changes), vmis, now=now))


def made(name: str, annotations: dict[str, str] | None = None, **changes: Any) -> Any:
    return vmi(name, owner=replicaset(), annotations=annotations, **changes)


def of(todo: Any, kind: type) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, kind) and each.resource is VMIS]


@pytest.mark.parametrize(("cause", "given"), CAUSES.items(), ids=CAUSES)
def test_p26_a_vmi_is_marked_and_nothing_is_deleted_or_created_before_it_has_drained(cause: str, given: Any):
    replicas, changes = given
    todo = planned(replicas, made("a", **changes))
    assert (of(todo, Delete), of(todo, Create), todo.requeue_after_s) == ([], [], 60)
    [patch] = [each for each in todo.actions if isinstance(each, Patch) and each.resource is VMIS]
    mark = json.loads(patch.body)["metadata"]["annotations"]
    assert mark == {DRAINING: f"{cause} until 2026-08-01T12:01:00Z of uid-a", DRAINED: None}
    waiting = planned(replicas, made("a", {DRAINING: mark[DRAINING]}, **changes))
    assert (of(waiting, Delete), of(waiting, Patch), of(waiting, Create)) == ([], [], [])
    answered = planned(replicas, made("a", {DRAINING: mark[DRAINING], DRAINED: "true"}, **changes))
    assert of(answered, Delete) == ["a"]
    assert len(of(answered, Create)) == (cause == "healing")
    assert of(planned(replicas, made("a", {DRAINING: mark[DRAINING]}, **changes), now=END), Delete) == ["a"]
    ended = made("a", {DRAINING: mark[DRAINING]}, **{**changes, "phase": "Succeeded", "entered_s": {"Succeeded": 999}})
    assert of(planned(0, ended), Delete) == ["a"]


def test_p26_a_mark_is_taken_back_if_its_reason_is_gone_or_another_vmi_is_unavailable():
    mark = {DRAINING: str(Mark("update", END, "uid-a"))}
    ready, unready = [made("b"), made("c")], [made("b", ready=False, ready_for_s=5), made("c")]
    kept = planned(3, made("a", mark, labels=OLD), *ready)
    assert (of(kept, Delete), of(kept, Patch)) == ([], [])
    for member, others in ((made("a", mark, labels=OLD), unready), (made("a", mark), ready)):
        todo = planned(3, member, *others)
        assert (of(todo, Delete), of(todo, Patch)) == ([], ["a"])


def test_p26_a_drain_goes_on_while_a_scale_in_waits_for_the_adoption_of_orphans():
    owner = replicaset(replicas=1, annotations=DRAIN)
    marked = made("a", {DRAINING: str(Mark("scale-in", END, "uid-a"))})
    todo = plan(replace(snapshot(owner, [marked, made("b"), vmi("c"), vmi("d")]), burst=1))
    assert (of(todo, Patch), of(todo, Delete)) == (["c"], [])


def test_p26_the_label_changes_unless_the_set_would_release_the_vmi():
    labelled = {**LABELS, IN_SERVICE: "true"}
    for match, labels in ((LABELS, {IN_SERVICE: "false"}), (labelled, None)):
        owner = replicaset(replicas=0, annotations=DRAIN, match_labels=match, template_labels=labelled)
        todo = plan(snapshot(owner, [vmi("a", owner=owner, labels=labelled)]))
        [patch] = [each for each in todo.actions if isinstance(each, Patch) and each.resource is VMIS]
        assert json.loads(patch.body)["metadata"].get("labels") == labels


@pytest.mark.parametrize("owner", [replicaset(), None], ids=["released", "detached"])
@pytest.mark.parametrize("is_selected", [False, True])
def test_r2_a_vmi_that_leaves_during_a_drain_loses_its_notes_and_returns_to_service(owner: Any, is_selected: bool):
    notes = {DRAINING: str(Mark("update", END, "uid")), DRAINED: "true", EARLY_FAILURES: "1 2026-08-01T12:00:00Z"}
    left = vmi(
        "testreplicasetabcde", owner=owner, annotations={**notes, "a": "b"}, labels={"app": "x", IN_SERVICE: "false"}
    )
    both = {**LABELS, IN_SERVICE: "true"}
    todo = planned(0, left, **({"match_labels": both, "template_labels": both} if is_selected else {}))
    [patch] = [json.loads(each.body)["metadata"] for each in todo.actions if each.resource is VMIS]
    assert (patch["ownerReferences"], patch["annotations"]) == ([], dict.fromkeys(notes))
    assert patch.get("labels") == (None if is_selected else {IN_SERVICE: "true"})
