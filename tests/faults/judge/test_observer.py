"""Tests of the observer: it notes every state once. If states may be missing, it notes a hole."""

from typing import Any

import pytest

from tests.faults.judge.observer import Recorder, _Expired, _Watch


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
