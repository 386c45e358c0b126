"""P20 for sets: no VMI is deleted that cannot come back, is protected or paused, or must drain first (P26)."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true
from controller.kubevirt.annotations import (
    ADOPTED_TEMPLATE,
    BUSY_UNTIL,
    DRAIN_SECONDS,
    DRAINED,
    DRAINING,
    EARLY_FAILURES,
    IN_SERVICE,
    PROTECT,
    REMOVE,
    REPLACE_UNREADY_AFTER,
    ROLLING_UPDATE,
    SCALE_IN,
    TEMPLATE_HASH,
)
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.draining import Mark
from controller.replicaset.plan import plan
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.status import next_status
from controller.replicaset.traits import group_vmis
from controller.runtime.actions import Create, Delete, Patch, Plan
from controller.runtime.execute.refusals import FIRST_WAIT_S, LONGEST_WAIT_S
from tests import builders
from tests.builders import LABELS, NOW, REPLICASETS, replicaset, seconds_ago, snapshot
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.fakes.requests import Fault, Request, refusal
from tests.plans import deleted, reasons
from tests.strategies import template_hash_of

OLD = {**LABELS, TEMPLATE_HASH: "older"}
UNREADY: dict[str, Any] = {"ready": False, "ready_for_s": 999, "entered_s": {"Running": 999}}
REPLACES = {ROLLING_UPDATE: "maxUnavailable=1", REPLACE_UNREADY_AFTER: "60"}


def vmi(name: str, *, paused: bool = False, **changes: Any) -> VirtualMachineInstance:
    condition = Condition(type="Paused", status="True", last_transition_time=seconds_ago(60))
    return builders.vmi(name, **{"owner": replicaset(), "conditions": [condition] if paused else (), **changes})


def planned(*vmis: VirtualMachineInstance, replicas: int, max_replicas: int = 0) -> Plan:
    owner = replicaset(replicas=replicas, annotations=REPLACES)
    return plan(replace(snapshot(owner, vmis), max_replicas=max_replicas))


DELETIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "scale-in": (0, {}),
    "rolling update": (1, {"labels": OLD}),
    "replacement of an unready VMI": (1, UNREADY),
    "clean-up of an unknown VMI": (0, {"phase": "Unknown"}),
    "clean-up of a finished VMI": (0, {"phase": "Failed", "ready_for_s": 9000}),
}


@pytest.mark.parametrize(("replicas", "changes"), DELETIONS.values(), ids=DELETIONS)
@pytest.mark.parametrize("mark", ["true", "True", ""])
def test_p20_a_protected_vmi_is_deleted_by_no_part_of_a_plan(replicas, changes, mark):
    assert deleted(planned(vmi("a", **changes), replicas=replicas)) == ["a"]
    assert deleted(planned(vmi("a", annotations={PROTECT: mark, REMOVE: "true"}, **changes), replicas=replicas)) == []


HOLDS = {"scale-in": "ScaleInHeld", "rolling update": "UpdateHeld", "clean-up of an unknown VMI": "ScaleInHeld"}


@pytest.mark.parametrize(("way", "reason"), HOLDS.items())
def test_p20_a_paused_vmi_stays_and_one_event_names_it(way, reason):
    replicas, changes = DELETIONS[way]
    todo = planned(vmi("a", paused=True, **changes), replicas=replicas)
    assert (deleted(todo), reasons(todo)) == ([], [reason])
    assert todo.held == "a waits: it is paused"
    assert todo.notices[0].message == "virtual machine a is not deleted now: it is paused"
    assert todo.notices[0].once == "uid-a it is paused"


@pytest.mark.parametrize("way", ["scale-in", "rolling update", "replacement of an unready VMI"])
def test_p20_an_unreadable_vmi_stays_and_an_event_names_it(way):
    replicas, changes = DELETIONS[way]
    todo = planned(replace(vmi("a", **changes), status=None, undecodable="why"), replicas=replicas)
    assert deleted(todo) == []
    assert set(reasons(todo)) == {"UndecodableVirtualMachine", HOLDS.get(way, "UndecodableVirtualMachine")}
    assert all("cannot be decoded" in notice.message for notice in todo.notices)


def test_p20_a_paused_vmi_is_not_replaced_for_being_unready_and_does_not_stall_its_set():
    paused = vmi("a", paused=True, **{**UNREADY, "ready_for_s": 9000})
    assert planned(paused, replicas=1).requeue_after_s is None
    status = next_status(snapshot(replicaset(replicas=1), [paused]), ())
    assert (status.printable_status, status.problem) == ("Degraded", "a: Paused")
    assert find_true(status.conditions, "Stalled") is None
    assert deleted(planned(vmi("done", paused=True, phase="Failed", ready_for_s=9000), replicas=0)) == ["done"]


def test_r6_a_paused_vmi_ranks_as_if_it_were_ready_and_the_others_leave():
    paused = vmi("a", paused=True, ready=False)
    members = [paused, vmi("b", ready=False), vmi("c", ready_for_s=9000), vmi("d", migrating=True)]
    assert [each.metadata.name for each in rank_for_removal(group_vmis(members), NOW)] == ["b", "d", "c", "a"]
    todo = planned(*members, replicas=0)
    assert (deleted(todo), reasons(todo)) == (["b", "d", "c"], ["ScaleInHeld"])
    assert deleted(planned(*members, replicas=1)) == ["b", "d", "c"]


@pytest.mark.parametrize("way", ["scale-in", "rolling update", "replacement of an unready VMI"])
def test_p24_a_busy_vmi_stays_until_its_work_ends(way):
    replicas, changes = DELETIONS[way]
    until = (NOW + timedelta(seconds=30)).isoformat()
    todo = planned(vmi("a", annotations={BUSY_UNTIL: until}, **changes), replicas=replicas)
    assert (deleted(todo), todo.requeue_after_s) == ([], 30)
    assert set(reasons(todo)) <= {HOLDS.get(way)}
    assert deleted(planned(vmi("a", annotations={BUSY_UNTIL: NOW.isoformat()}, **changes), replicas=replicas)) == ["a"]
    finished = vmi("b", annotations={BUSY_UNTIL: until}, phase="Succeeded", ready_for_s=9000)
    assert deleted(planned(finished, replicas=0)) == ["b"]


def test_p24_the_busy_vmis_of_a_set_are_counted():
    owner, marked = replicaset(replicas=3), {"annotations": {BUSY_UNTIL: "2999-01-01T00:00:00Z"}}
    members = [vmi("a", **marked), vmi("b", **marked), vmi("c", **marked, phase="Failed"), vmi("d")]
    assert snapshot(owner, members).marked == {"busy": 2}


def test_p25_a_set_that_spares_running_vmis_deletes_only_finished_ones():
    owner = replicaset(replicas=1, annotations={SCALE_IN: "finished"})
    members = [vmi("a", owner=owner), vmi("b", owner=owner), vmi("c", owner=owner, phase="Succeeded", ready_for_s=9000)]
    todo = plan(snapshot(owner, members))
    assert (deleted(todo), reasons(todo)) == (["c"], ["ScaleInHeld"])
    assert todo.held == f"1 surplus VMIs stay until they have finished: {SCALE_IN} keeps them"


def test_p20_a_limit_below_the_present_size_replaces_no_vmi():
    for changes, reason in (({"labels": OLD}, "UpdateHeld"), (UNREADY, "HealingHeld")):
        members = [vmi(f"v-{number}", **changes) for number in range(6)]
        todo = planned(*members, replicas=10, max_replicas=5)
        assert (deleted(todo), reasons(todo)) == ([], ["ReplicasLimited", reason])
        assert "--max-replicas 5 would not let a new one in" in todo.held
        assert deleted(planned(*members[:5], replicas=10, max_replicas=5)) == ["v-0"]


@pytest.mark.parametrize("way", ["rolling update", "replacement of an unready VMI"])
def test_p20_the_reason_of_a_replacement_is_judged_by_a_new_plan_after_a_conflict(way):
    _, changes = DELETIONS[way]
    (delete,) = [each for each in planned(vmi("a", **changes), replicas=1).actions if isinstance(each, Delete)]
    assert (delete.owner_uid, delete.version) == ("", "1")
    successor = msgspec.json.decode(delete.successor)
    assert (successor["kind"], successor["metadata"]["name"] == "a") == ("VirtualMachineInstance", False)


HELD = {"UpdateHeld": {"labels": OLD}, "HealingHeld": {"labels": LABELS, **UNREADY}}


@pytest.mark.parametrize(("reason", "changes"), HELD.items(), ids=HELD)
def test_p20_while_creates_are_refused_no_vmi_is_replaced_and_the_set_says_so(reason, changes):
    owner = replicaset(replicas=3, annotations=REPLACES)
    simulation = ReplicaSetSimulation.of(owner, [vmi(f"v-{n}", owner=owner, **changes) for n in range(3)])
    simulation.fail(refusal(422, "Invalid", "denied by the policy"), verb="create")
    for _ in range(5):
        simulation.run_pass()
        simulation.advance(400)
    assert sorted(each.metadata.name for each in simulation.active) == ["v-0", "v-1", "v-2"]
    message = "the successor of v-0 would be refused: denied by the policy"
    assert simulation.conditions["ReplicaFailure"] == message
    assert find_true(simulation.owner.status.conditions, "Stalled").reason == "ProgressDeadlineExceeded"
    notices = {(each.once, each.message) for each in simulation.process.recorder.published if each.reason == reason}
    assert notices == {("uid-v-0 successor refused", f"virtual machine v-0 is not deleted: {message}")}
    assert simulation.owner.status.problem == message
    simulation.heal()
    simulation.advance(LONGEST_WAIT_S)
    simulation.run_pass()
    assert "v-0" not in [each.metadata.name for each in simulation.active]


def test_p22_a_refused_note_is_a_failure_of_the_set_and_stops_no_other_write():
    simulation = ReplicaSetSimulation.of(replicaset(replicas=2), [vmi("a", labels=LABELS)])
    denied = refusal(403, "Forbidden", "may not patch sets")

    def fault_for(request: Request) -> Fault | None:
        return denied if (request.verb, request.resource, request.subresource) == ("patch", REPLICASETS, "") else None

    simulation.server.fault_for = fault_for
    simulation.run_pass()
    assert len(simulation.active) == 2
    assert simulation.conditions["ReplicaFailure"] == "may not patch sets"
    assert "FailedUpdate" in simulation.reasons
    simulation.heal()
    simulation.advance(FIRST_WAIT_S)
    simulation.run_pass()
    noted = simulation.owner.metadata.annotations
    assert noted == {ADOPTED_TEMPLATE: template_hash_of(replicaset())}
    assert "ReplicaFailure" not in simulation.conditions


DRAIN = {DRAIN_SECONDS: "60", ROLLING_UPDATE: "maxUnavailable=1", REPLACE_UNREADY_AFTER: "60"}
END = NOW + timedelta(seconds=60)
CAUSES = {"scale-in": (0, {}), "update": (1, {"labels": OLD}), "healing": (1, UNREADY)}


def drained(replicas: int, *vmis: Any, now: Any = NOW, **changes: Any) -> Any:
    return plan(snapshot(replicaset(replicas=replicas, annotations=DRAIN, **changes), vmis, now=now))


def of(todo: Any, kind: type) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, kind) and each.resource is VMIS]


@pytest.mark.parametrize(("cause", "given"), CAUSES.items(), ids=CAUSES)
def test_p26_a_vmi_is_marked_and_nothing_is_deleted_or_created_before_it_has_drained(cause: str, given: Any):
    replicas, changes = given
    todo = drained(replicas, vmi("a", **changes))
    assert (of(todo, Delete), of(todo, Create), todo.requeue_after_s) == ([], [], 60)
    [patch] = [each for each in todo.actions if isinstance(each, Patch) and each.resource is VMIS]
    mark = json.loads(patch.body)["metadata"]["annotations"]
    assert mark == {DRAINING: f"{cause} until 2026-08-01T12:01:00Z of uid-a", DRAINED: None}
    waiting = drained(replicas, vmi("a", annotations={DRAINING: mark[DRAINING]}, **changes))
    assert (of(waiting, Delete), of(waiting, Patch), of(waiting, Create)) == ([], [], [])
    answered = drained(replicas, vmi("a", annotations={DRAINING: mark[DRAINING], DRAINED: "true"}, **changes))
    assert of(answered, Delete) == ["a"]
    assert len(of(answered, Create)) == (cause == "healing")
    assert of(drained(replicas, vmi("a", annotations={DRAINING: mark[DRAINING]}, **changes), now=END), Delete) == ["a"]
    ended = {**changes, "phase": "Succeeded", "entered_s": {"Succeeded": 999}}
    assert of(drained(0, vmi("a", annotations={DRAINING: mark[DRAINING]}, **ended)), Delete) == ["a"]


def test_p26_a_mark_is_taken_back_if_its_reason_is_gone_or_another_vmi_is_unavailable():
    mark = {DRAINING: str(Mark("update", END, "uid-a"))}
    ready, unready = [vmi("b"), vmi("c")], [vmi("b", ready=False, ready_for_s=5), vmi("c")]
    kept = drained(3, vmi("a", annotations=mark, labels=OLD), *ready)
    assert (of(kept, Delete), of(kept, Patch)) == ([], [])
    for member, others in ((vmi("a", annotations=mark, labels=OLD), unready), (vmi("a", annotations=mark), ready)):
        todo = drained(3, member, *others)
        assert (of(todo, Delete), of(todo, Patch)) == ([], ["a"])


def test_p26_a_drain_goes_on_while_a_scale_in_waits_for_the_adoption_of_orphans():
    owner = replicaset(replicas=1, annotations=DRAIN)
    marked = vmi("a", annotations={DRAINING: str(Mark("scale-in", END, "uid-a"))})
    todo = plan(replace(snapshot(owner, [marked, vmi("b"), builders.vmi("c"), builders.vmi("d")]), burst=1))
    assert (of(todo, Patch), of(todo, Delete)) == (["c"], [])


def test_p26_the_label_changes_unless_the_set_would_release_the_vmi():
    labelled, mark = {**LABELS, IN_SERVICE: "true"}, {DRAINING: str(Mark("scale-in", END, "uid-a"))}

    def labels(match: dict[str, str], marks: dict[str, str], shown: str = "true") -> list[Any]:
        owner = replicaset(replicas=0, annotations=DRAIN, match_labels=match, template_labels=labelled)
        member = builders.vmi("a", owner=owner, labels={**labelled, IN_SERVICE: shown}, annotations=marks)
        found = [each for each in plan(snapshot(owner, [member])).actions if isinstance(each, Patch)]
        return [json.loads(each.body)["metadata"].get("labels") for each in found if each.resource is VMIS]

    assert (labels(LABELS, {}), labels(LABELS, mark)) == ([None], [{IN_SERVICE: "false"}]), "the mark comes first"
    assert labels(LABELS, mark, "false") == []
    assert labels(LABELS, {}, "false") == [{IN_SERVICE: "true"}], "a policy takes the mark back, so no time ends it"
    assert (labels(labelled, {}), labels(labelled, mark)) == ([None], [])


@pytest.mark.parametrize("owner", [replicaset(), None], ids=["released", "detached"])
@pytest.mark.parametrize("is_selected", [False, True])
def test_r2_a_vmi_that_leaves_during_a_drain_loses_its_notes_and_returns_to_service(owner: Any, is_selected: bool):
    notes = {DRAINING: str(Mark("update", END, "uid")), DRAINED: "true", EARLY_FAILURES: "1 2026-08-01T12:00:00Z"}
    left = builders.vmi(
        "testreplicasetabcde", owner=owner, annotations={**notes, "a": "b"}, labels={"app": "x", IN_SERVICE: "false"}
    )
    both = {**LABELS, IN_SERVICE: "true"}
    todo = drained(0, left, **({"match_labels": both, "template_labels": both} if is_selected else {}))
    [patch] = [json.loads(each.body)["metadata"] for each in todo.actions if each.resource is VMIS]
    assert (patch["ownerReferences"], patch["annotations"]) == ([], dict.fromkeys(notes))
    assert patch.get("labels") == (None if is_selected else {IN_SERVICE: "true"})
