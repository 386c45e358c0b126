"""R8: a paused set is watched and not touched."""

from __future__ import annotations

import pytest

from tests.integration.herd import Place, eventually, stays

pytestmark = pytest.mark.cluster


def test_r8_a_paused_set_creates_and_deletes_nothing_and_its_status_follows(place: Place) -> None:
    place.make_set(2)
    first, _ = place.wait_for(2)
    place.change_set({"spec": {"paused": True}})
    condition = eventually(lambda: place.condition("ReplicaPaused"))
    assert (condition["status"], condition["reason"]) == ("True", "Paused")
    eventually(lambda: place.reasons()["SuccessfulPaused"] == 1)

    place.change_set({"spec": {"replicas": 4}})
    place.delete_vmi(first)
    eventually(lambda: place.status().get("replicas") == 1, what="the status follows")
    stays(lambda: len(place.vmis()) == 1, what="nothing is created")
    place.change_set({"spec": {"replicas": 0}})
    stays(lambda: len(place.vmis()) == 1, what="nothing is deleted")
    assert place.condition("ReplicaPaused")["lastTransitionTime"] == condition["lastTransitionTime"]

    place.change_set({"spec": {"paused": False, "replicas": 3}})
    place.wait_for(3)
    eventually(lambda: place.condition("ReplicaPaused") is None)
    eventually(lambda: place.reasons()["SuccessfulResumed"] == 1)
    assert place.reasons()["SuccessfulPaused"] == 1
