"""R3 and R7: who counts, who is replaced, and what is cleared away afterwards."""

from __future__ import annotations

import pytest

from tests.integration.herd import Place, eventually, stays

pytestmark = pytest.mark.cluster


def counts(place: Place) -> tuple[int, int]:
    status = place.status()
    return status.get("replicas", 0), status.get("readyReplicas", 0)


def test_r3_the_status_counts_active_and_ready_vmis(place: Place) -> None:
    place.make_set(3)
    first, *_ = place.wait_for(3)
    place.play(first)
    eventually(lambda: counts(place) == (3, 1))
    place.play_all()
    eventually(lambda: counts(place) == (3, 3))
    place.play(first, ready=False)
    eventually(lambda: counts(place) == (3, 2))
    assert len(place.requests("create")) == 3


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_r3_r7_a_vmi_that_ended_is_replaced_first_and_cleared_away_then(place: Place, phase: str) -> None:
    place.make_set(2)
    ended, *_ = place.wait_for(2)
    place.play(ended, phase=phase, ready=False)
    eventually(lambda: ended not in place.vmis(), what="the one that ended is deleted")
    assert len(place.wait_for(2)) == 2
    (deletion,) = place.requests("delete")
    replacement = place.requests("create")[-1]
    assert deletion.name == ended
    assert replacement.stage_timestamp <= deletion.request_received_timestamp


@pytest.mark.parametrize(
    "unknown",
    [{"phase": "Unknown", "ready": False}, {"phase": "Running", "ready": False, "reason": "PodTerminating"}],
    ids=["phase", "PodTerminating"],
)
def test_r3_a_vmi_in_an_unknown_state_is_replaced_at_once(place: Place, unknown: dict[str, object]) -> None:
    place.make_set(1)
    (lost,) = place.wait_for(1)
    place.play(lost, **unknown)  # type: ignore[arg-type]
    eventually(lambda: lost not in place.vmis() and len(place.alive()) == 1, what="another takes its place")


def test_r3_a_vmi_that_is_being_deleted_is_replaced_while_it_still_shuts_down(place: Place) -> None:
    place.make_set(1)
    (leaving,) = place.wait_for(1)
    place.change_vmi(leaving, {"metadata": {"finalizers": ["test.vmherd.dev/shutdown"]}})
    place.delete_vmi(leaving)
    eventually(lambda: len(place.alive()) == 1, what="its replacement")
    assert leaving in place.vmis()
    stays(lambda: len(place.vmis()) == 2, what="one leaving, one new")
    place.change_vmi(leaving, {"metadata": {"finalizers": None}})
    eventually(lambda: len(place.vmis()) == 1)
    assert not place.requests("delete")
