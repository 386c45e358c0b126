"""R7 and R8: when what is finished is cleared away, and when it is not."""

from __future__ import annotations

import pytest

from tests.integration.herd import Place, eventually, stays
from tests.integration.quota import allow

pytestmark = pytest.mark.cluster


def test_r7_what_is_finished_stays_until_its_replacement_is_there(place: Place) -> None:
    place.make_set(1)
    (ended,) = place.wait_for(1)
    allow(place, 1)
    place.play(ended, phase="Failed", ready=False)
    eventually(lambda: place.condition("ReplicaFailure"), what="there is no room for a replacement")
    stays(lambda: list(place.alive()) == [ended], what="it stays")
    assert not place.requests("delete")
    allow(place, 5)
    eventually(lambda: len(place.vmis()) == 1 and ended not in place.vmis(), what="replaced, then cleared away")


def test_r7_r8_a_paused_set_clears_nothing_away(place: Place) -> None:
    place.make_set(1)
    (ended,) = place.wait_for(1)
    place.change_set({"spec": {"paused": True}})
    eventually(lambda: place.condition("ReplicaPaused"))
    place.play(ended, phase="Succeeded", ready=False)
    eventually(lambda: place.status().get("replicas", 0) == 0, what="it counts no more")
    stays(lambda: list(place.alive()) == [ended], what="it stays, and alone")
    place.change_set({"spec": {"paused": False}})
    eventually(lambda: len(place.vmis()) == 1 and ended not in place.vmis())
