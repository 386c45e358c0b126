"""R6: VMIs that may not go, and marks that cannot be read. Who goes first is in test_r06_order.py."""

from __future__ import annotations

import pytest

from tests.integration.herd import Place, eventually, stays

pytestmark = pytest.mark.cluster

MARK = "vmherd.dev"


def annotate(place: Place, name: str, **annotations: str) -> None:
    texts = {f"{MARK}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    place.change_vmi(name, {"metadata": {"annotations": texts}})


def mark_seen(place: Place) -> None:
    """Return when the controller's cache shows all marks: it shows what was written after them to the same VMIs."""
    place.play_all()
    eventually(lambda: place.status().get("readyReplicas") == len(place.alive()))


def test_r6_a_protected_vmi_stays_and_the_set_says_so_once(place: Place) -> None:
    place.make_set(2)
    first, second = sorted(place.wait_for(2))
    for name in (first, second):
        annotate(place, name, protect="true")
    mark_seen(place)
    place.change_set({"spec": {"replicas": 0}})
    eventually(lambda: place.reasons()["ProtectedFromDeletion"] == 1, what="an Event says so")
    stays(lambda: len(place.alive()) == 2 and place.reasons()["ProtectedFromDeletion"] == 1, for_s=2.0)
    annotate(place, first, protect="false")
    eventually(lambda: sorted(place.vmis()) == [second], what="the other goes as soon as it may")


def test_r6_a_cost_that_is_no_number_counts_as_zero_and_is_told(place: Place) -> None:
    place.make_set(2)
    first, second = sorted(place.wait_for(2))
    annotate(place, first, deletion_cost="a lot")
    annotate(place, second, deletion_cost="1")
    mark_seen(place)
    place.change_set({"spec": {"replicas": 1}})
    eventually(lambda: len(place.vmis()) == 1)
    assert sorted(place.vmis()) == [second]
    eventually(lambda: place.reasons()["InvalidAnnotation"] == 1, what="a warning names it")
