"""R8: the controller updates the status of a paused set, and creates and deletes nothing."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, owned_by, owner_uid, stays

pytestmark = pytest.mark.cluster


def test_r8_a_paused_set_creates_and_deletes_nothing_and_its_status_follows(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    first, _ = sets.wait_for(2)
    sets.change_set({"spec": {"paused": True}})
    condition = eventually(lambda: sets.condition("ReplicaPaused"))
    assert (condition["status"], condition["reason"]) == ("True", "Paused")
    eventually(lambda: sets.reasons()["SuccessfulPaused"] == 1)

    sets.change_set({"spec": {"replicas": 4}})
    sets.delete_vmi(first)
    eventually(lambda: sets.status().get("replicas") == 1, what="the status follows")
    stays(lambda: len(sets.vmis()) == 1, what="nothing is created")
    sets.change_set({"spec": {"replicas": 0}})
    stays(lambda: len(sets.vmis()) == 1, what="nothing is deleted")
    assert sets.condition("ReplicaPaused")["lastTransitionTime"] == condition["lastTransitionTime"]

    sets.change_set({"spec": {"paused": False, "replicas": 3}})
    sets.wait_for(3)
    eventually(lambda: sets.condition("ReplicaPaused") is None)
    eventually(lambda: sets.reasons()["SuccessfulResumed"] == 1)
    assert sets.reasons()["SuccessfulPaused"] == 1


def test_r8_a_paused_set_adopts_and_releases_vmis(sets: ReplicaSetNamespace) -> None:
    owner = sets.make_set(2)
    first, second = sets.wait_for(2)
    sets.change_set({"spec": {"paused": True}})
    eventually(lambda: sets.condition("ReplicaPaused"))
    sets.make_vmi("orphan")
    sets.make_vmi("another")
    sets.change_vmi(first, {"metadata": {"labels": {"app": None}}})
    members = sorted(["another", "orphan", second])
    eventually(lambda: sorted(owned_by(sets.vmis().values(), owner)) == members, what="two are adopted, one released")
    eventually(lambda: sets.status().get("replicas") == 3, what="the status follows")
    assert owner_uid(sets.vmis()[first]) == ""
    assert sets.requests("delete") == []
