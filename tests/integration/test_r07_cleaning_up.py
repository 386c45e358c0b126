"""R7 and R8: when a finished VMI is deleted, and when it stays."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, stays
from tests.integration.quota import allow

pytestmark = pytest.mark.cluster


def test_r7_a_finished_vmi_stays_until_its_replacement_exists(sets: ReplicaSetNamespace) -> None:
    sets.make_set(1)
    (ended,) = sets.wait_for(1)
    allow(sets, 1)
    sets.play(ended, phase="Failed", ready=False)
    eventually(lambda: sets.condition("ReplicaFailure"), what="the quota allows no replacement")
    stays(lambda: list(sets.alive()) == [ended], what="the finished VMI stays")
    assert not sets.requests("delete")
    allow(sets, 5)
    eventually(lambda: len(sets.vmis()) == 1 and ended not in sets.vmis(), what="replaced, then deleted")


def test_r7_r8_a_paused_set_deletes_no_finished_vmi(sets: ReplicaSetNamespace) -> None:
    sets.make_set(1)
    (ended,) = sets.wait_for(1)
    sets.change_set({"spec": {"paused": True}})
    eventually(lambda: sets.condition("ReplicaPaused"))
    sets.play(ended, phase="Succeeded", ready=False)
    eventually(lambda: sets.status().get("replicas", 0) == 0, what="the finished VMI does not count")
    stays(lambda: list(sets.alive()) == [ended], what="the finished VMI stays, without a replacement")
    sets.change_set({"spec": {"paused": False}})
    eventually(lambda: len(sets.vmis()) == 1 and ended not in sets.vmis())
