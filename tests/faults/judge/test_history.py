"""The observer notes every state once, and a hole where states may be missing. The history joins states and writes."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.faults.judge.audit_tail import AuditTail
from tests.faults.judge.completion import complete
from tests.faults.judge.history import Change, History, Hole, Observation
from tests.faults.judge.made_history import OURS, Made, ready, replica_set, vm, vmi
from tests.faults.judge.observer import Recorder, _Expired, _Watch
from tests.faults.judge.states import SET, VM, VMI, is_ready, name_of
from tests.faults.judge.steps import DETACHED, UNFINALIZED, Step, collector, simulator, user, we

READY = simulator.patch(VMI, "herd-a", ready())


def made_by(*told: Step) -> Made:
    made = Made()
    for step in told:
        step(made)
    return made


def test_a_write_is_joined_with_the_state_that_has_its_version() -> None:
    changes = made_by(user.create(replica_set(1)), we.member("herd-a"), READY).history().changes
    assert [str(change.author) for change in changes] == [
        "create virtualmachineinstancereplicasets/herd -> 201",
        "create virtualmachineinstances/herd-a -> 201",
        "patch virtualmachineinstances/herd-a -> 200",
    ]
    assert [change.ours for change in changes] == [False, True, False]


def test_a_delete_without_a_version_in_its_answer_is_joined_by_uid() -> None:
    removal = made_by(user.create(vmi("herd-a")), collector.delete(VMI, "herd-a")).history().changes[-1]
    assert removal.after is None
    assert removal.write.by_collector


def unfinalized(*before: Step) -> tuple[Change, ...]:
    """The changes up to our patch that removes the last finalizer of a VM. Its answer has the version before it."""
    made = made_by(user.create(vm("pool-0")), user.delete(VM, "pool-0"), *before)
    version = str(made.revision)
    made.patch(VM, "pool-0", UNFINALIZED, by=OURS)
    answer = made.requests[-1].answer
    assert answer is not None
    answer["metadata"]["resourceVersion"] = version
    made.requests[-1] = replace(made.requests[-1], answered=0.0)
    return made.history().changes


def test_the_patch_that_removes_the_last_finalizer_removes_the_object() -> None:
    changes = unfinalized()
    assert [change.ours for change in changes] == [False, False, True]
    assert [change.starts_deletion for change in changes] == [False, True, False]


def test_a_patch_that_only_tests_made_no_change_although_its_answer_has_the_version_of_one() -> None:
    history = made_by(user.create(vm("pool-0")), simulator.patch(VM, "pool-0", ready())).history()
    theirs = history.requests[-1]
    guard = replace(theirs, user_agent=OURS, body=[{"op": "test"}], time=theirs.time - 1, answered=0.0)
    changes = History(history.observations, (*history.requests, guard)).changes
    assert [change.ours for change in changes] == [False, False]


def test_the_removal_of_the_last_finalizer_is_not_the_author_of_the_change_before() -> None:
    changes = unfinalized(simulator.patch(VM, "pool-0", {"status": {"created": False}}))
    assert [change.ours for change in changes] == [False, False, False, True]


def test_a_write_that_was_answered_with_an_error_and_happened_is_found_by_name() -> None:
    made = Made()
    made.fail("create", VMI, "herd-a", 504)
    item = {**vmi("herd-a"), "kind": VMI}
    item["metadata"] |= {"uid": "u", "namespace": "n", "resourceVersion": "7"}
    made.observations.append(Observation(7, VMI, "ADDED", item, made.now + 1))
    assert made.history().changes[-1].ours


@pytest.mark.parametrize(("version", "ours"), [(1, True), (2, False), (None, True)])
def test_an_unanswered_patch_made_a_change_only_from_the_version_that_it_names(version: int | None, ours: bool) -> None:
    made = made_by(user.create(replica_set(1)))
    metadata = {} if version is None else {"metadata": {"resourceVersion": str(version)}}
    made.fail("patch", SET, "herd", 504, body={**metadata, "status": {"replicas": 1}}, subresource="status")
    item = copy.deepcopy(made.objects[SET, "herd"])
    assert item["metadata"]["resourceVersion"] == "1"
    item["metadata"]["resourceVersion"] = "7"
    made.observations.append(Observation(7, SET, "MODIFIED", item, made.now + 1))
    assert made.history().changes[-1].ours == ours


def test_a_write_without_an_effect_has_no_change() -> None:
    history = made_by(user.create(replica_set(1)), *[we.report(SET, "herd", replicas=1)] * 2).history()
    assert [history.effect(write) is not None for write in history.writes] == [True, True, False]


def test_the_world_before_each_change_has_the_objects_and_the_children() -> None:
    lost = user.patch(VMI, "herd-a", DETACHED), user.delete(VMI, "herd-a")
    made = made_by(user.create(replica_set(1)), we.member("herd-a"), *lost)
    uid = made.owner["metadata"]["uid"]
    seen = [[name_of(child) for child in world.children(uid)] for _, world in made.history().replay()]
    assert seen == [[], [], ["herd-a"], []]
    assert made.history().end.get(VMI, "herd-a") is None


def test_the_state_of_an_object_at_a_time() -> None:
    made = Made()
    uid = made.create(vmi("herd-a"))["metadata"]["uid"]
    before = made.now
    made.wait(1)
    made.patch(VMI, "herd-a", ready())
    history = made.history()
    states = [history.at(VMI, uid, time) for time in (0, before, made.now)]
    assert states[0] is None
    assert [is_ready(state) for state in states[1:] if state is not None] == [False, True]


def test_states_that_the_observer_missed_come_from_the_answers() -> None:
    made = made_by(user.create(vmi("herd-a")), READY, user.delete(VMI, "herd-a"))
    kept = [each for each in made.observations if each.type != "MODIFIED"]
    assert complete(kept, made.requests) == tuple(made.observations)


def test_a_delete_without_an_object_in_its_answer_is_the_author_of_the_removal() -> None:
    """A patch that removed the last finalizer at the same time is answered with success, too."""
    made = made_by(user.create(vmi("herd-a")), we.delete(VMI, "herd-a"))
    removal = made.requests[-1]
    metadata = {"uid": removal.answer["details"]["uid"], "resourceVersion": "1", "deletionTimestamp": "x"}  # type: ignore[index]
    late = replace(removal, verb="patch", time=removal.time + 0.001, answer={"kind": VMI, "metadata": metadata})
    change = History(tuple(made.observations), (*made.requests, late)).effect(removal)
    assert change is not None
    assert change.after is None


def test_two_removals_that_one_list_shows_are_both_known() -> None:
    made = made_by(user.create(vm("pool-0")), user.create(vm("pool-1")))
    gone = [Observation(90, VM, "DELETED", made.get(VM, name), 99.0) for name in ("pool-0", "pool-1")]
    history = History(complete([*made.observations, *gone], made.requests), tuple(made.requests))
    assert not list(history.end.all(VM))


def test_a_removal_that_a_list_shows_comes_before_the_next_object_with_this_name() -> None:
    made = made_by(user.create(vm("pool-0")))
    first = copy.deepcopy(made.get(VM, "pool-0"))
    del made.objects[VM, "pool-0"]
    made.create(vm("pool-0"))
    seen = [*made.observations, Observation(90, VM, "DELETED", first, 99.0)]
    changes = History(complete(seen, made.requests), tuple(made.requests)).changes
    assert [each.after is None for each in changes] == [False, True, False]
    assert changes[0].uid == changes[1].uid != changes[2].uid


def test_an_object_that_the_observer_never_saw_is_removed_by_the_delete_of_the_audit_log() -> None:
    made = made_by(user.create(vmi("herd-a")), we.delete(VMI, "herd-a"))
    history = History(complete((), made.requests), tuple(made.requests))
    assert [each.after is None for each in history.changes] == [False, True]
    assert history.effect(made.requests[1]) is history.changes[1]


def test_a_change_directly_after_a_hole_has_an_uncertain_state_before() -> None:
    made = made_by(user.create(vmi("herd-a")), READY)
    for holes, uncertain in (((), False), ((Hole(VMI, 1, 2, ""),), True), ((Hole(VMI, 2, 9, ""),), False)):
        history = History(tuple(made.observations), tuple(made.requests), holes)
        assert history.is_after_hole(history.changes[1]) is uncertain
    assert not History(tuple(made.observations), (), (Hole(VM, 1, 2, ""),)).is_after_hole(history.changes[1])


def record(**more: Any) -> bytes:
    fields: dict[str, Any] = {
        "verb": "create",
        "requestURI": "/apis/kubevirt.io/v1/namespaces/n/virtualmachineinstances",
        "user": {"username": "u"},
        "userAgent": OURS,
        "objectRef": {"resource": "virtualmachineinstances", "namespace": "n"},
        "responseStatus": {"code": 201},
        "requestObject": {"metadata": {"name": "herd-a"}},
        "responseObject": {"metadata": {"name": "herd-a", "resourceVersion": "5"}},
        "requestReceivedTimestamp": "2026-01-01T00:00:01.5Z",
        "stageTimestamp": "2026-01-01T00:00:02Z",
    }
    return json.dumps({**fields, **more}).encode() + b"\n"


def test_the_audit_log_is_read_line_by_line_and_by_namespace(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    other = {"resource": "virtualmachineinstances", "namespace": "other", "name": "x"}
    log.write_bytes(record() + record(objectRef=other) + record()[:50])
    tail = AuditTail(log)
    tail.read()
    [request] = tail.requests("n")
    assert (request.name, request.revision, request.ours, request.kind) == ("herd-a", 5, True, VMI)
    assert request.answered - request.time == 0.5
    assert len(tail.requests("n", "other")) == 2
    assert tail.acts("n") == 1
    with log.open("ab") as lines:
        lines.write(record()[50:])
    tail.read()
    assert len(tail.requests("n")) == 2
    tail.forget("n")
    assert tail.requests("n") == ()
    assert tail.acts("n") == 0


def test_a_request_without_a_namespace_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_bytes(record(objectRef={"resource": "nodes", "name": "x"}))
    tail = AuditTail(log)
    tail.read()
    assert tail.requests("") == ()


def item(name: str, revision: int, namespace: str = "n") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "namespace": namespace, "resourceVersion": str(revision)}
    return {"kind": "VirtualMachine", "metadata": metadata}


def watch_of(*items: dict[str, Any], revision: int = 10) -> tuple[_Watch, Recorder]:
    recorder = Recorder()
    watch = _Watch("VirtualMachine", recorder)
    watch.take_list(items, revision)
    return watch, recorder


def seen(recorder: Recorder, namespace: str = "n") -> list[tuple[int, str]]:
    return [(each.revision, each.type) for each in recorder.observations[namespace]]


def test_the_first_list_and_the_events_are_noted_by_namespace() -> None:
    watch, recorder = watch_of(item("a", 7), item("b", 8, "other"))
    watch.take_event({"type": "MODIFIED", "object": item("a", 11)})
    watch.take_event({"type": "DELETED", "object": item("a", 12)})
    assert seen(recorder) == [(7, "ADDED"), (11, "MODIFIED"), (12, "DELETED")]
    assert seen(recorder, "other") == [(8, "ADDED")]
    assert (watch.revision, recorder.holes) == (12, [])


def test_a_bookmark_moves_the_revision_and_is_no_state() -> None:
    watch, recorder = watch_of()
    watch.take_event({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "50"}}})
    assert (watch.revision, recorder.observations) == (50, {})


def test_an_error_in_the_watch_ends_it() -> None:
    watch, _ = watch_of()
    with pytest.raises(_Expired):
        watch.take_event({"type": "ERROR", "object": {"code": 410, "message": "too old"}})


def test_a_second_list_is_a_hole_and_shows_what_changed() -> None:
    watch, recorder = watch_of(item("a", 7), item("b", 8), item("c", 9))
    watch.take_list([item("a", 7), item("b", 15), item("d", 16)], 20)
    assert seen(recorder)[3:] == [(20, "DELETED"), (15, "MODIFIED"), (16, "ADDED")]
    [hole] = recorder.holes
    assert (hole.after, hole.until) == (10, 20)
    assert "2 states and 1 removals" in hole.why


def test_a_newer_list_shows_which_states_and_removals_are_still_missing() -> None:
    watch, recorder = watch_of(item("a", 7), item("b", 8), item("x", 9, "other"))
    assert watch.behind([item("a", 7), item("b", 8)], "n") == []
    assert watch.behind([item("a", 7), item("b", 12), item("c", 13)], "n") == ["b", "c"]
    assert watch.behind([item("a", 7)], "n") == ["b"]
    watch.take_event({"type": "DELETED", "object": item("b", 14)})
    assert watch.behind([item("a", 7), item("b", 12)], "n") == []
    recorder.forget("n")
    assert "n" not in recorder.observations


def test_a_list_after_a_restore_shows_older_states() -> None:
    watch, recorder = watch_of(item("a", 7))
    watch.take_list([item("a", 5)], 6)
    assert seen(recorder) == [(7, "ADDED"), (5, "MODIFIED")]
    assert watch.revision == 6
