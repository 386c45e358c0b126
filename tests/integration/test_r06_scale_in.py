"""R6: who goes first when there are too many."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.herd import Place, eventually, stays

pytestmark = pytest.mark.cluster

MARK = "vmherd.dev"


def annotate(place: Place, name: str, **annotations: str) -> None:
    texts = {f"{MARK}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    place.change_vmi(name, {"metadata": {"annotations": texts}})


# Each makes the second VMI, by name, the one that should go; all are running and ready on nodes of their own before.
REASONS: dict[str, Callable[[Place, str], object]] = {
    "marked for removal, whatever its state": lambda place, name: annotate(place, name, remove="true"),
    "no node yet": lambda place, name: place.change_vmi(
        name, {"status": {"phase": "Pending", "nodeName": None, "conditions": None}}
    ),
    "not running yet": lambda place, name: place.play(name, phase="Scheduled", ready=False, node="node-b"),
    "not ready": lambda place, name: place.play(name, ready=False, node="node-b"),
    "cheaper": lambda place, name: annotate(place, name, deletion_cost="-5"),
    "ready for a shorter time": lambda place, name: place.play(name, node="node-b", since="2026-02-01T00:00:00Z"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_r6_who_goes_first(place: Place, reason: str) -> None:
    place.make_set(3)
    names = sorted(place.wait_for(3))
    for name, node in zip(names, ("node-a", "node-b", "node-c"), strict=True):
        place.play(name, node=node)
    eventually(lambda: place.status().get("readyReplicas") == 3)
    REASONS[reason](place, names[1])
    place.change_set({"spec": {"replicas": 2}})
    eventually(lambda: len(place.vmis()) == 2)
    assert sorted(place.vmis()) == [names[0], names[2]]


def test_r6_a_crowded_node_gives_first(place: Place) -> None:
    place.make_set(3)
    names = sorted(place.wait_for(3))
    for name, node in zip(names, ("node-a", "node-b", "node-b"), strict=True):
        place.play(name, node=node)
    eventually(lambda: place.status().get("readyReplicas") == 3)
    place.change_set({"spec": {"replicas": 2}})
    eventually(lambda: len(place.vmis()) == 2)
    assert names[0] in place.vmis()


def test_r6_a_protected_vmi_stays_and_the_set_says_so_once(place: Place) -> None:
    place.make_set(2)
    first, second = sorted(place.wait_for(2))
    for name in (first, second):
        annotate(place, name, protect="true")
    place.change_set({"spec": {"replicas": 0}})
    eventually(lambda: place.reasons()["ProtectedFromDeletion"] == 1, what="an Event says so")
    stays(lambda: len(place.alive()) == 2 and place.reasons()["ProtectedFromDeletion"] == 1, for_s=2.0)
    annotate(place, first, protect="false")
    eventually(lambda: sorted(place.vmis()) == [second], what="the other goes as soon as it may")


def test_r6_a_cost_that_is_no_number_counts_as_zero_and_is_told(place: Place) -> None:
    place.make_set(2)
    first, second = sorted(place.wait_for(2))
    place.play_all()
    eventually(lambda: place.status().get("readyReplicas") == 2)
    annotate(place, first, deletion_cost="a lot")
    annotate(place, second, deletion_cost="1")
    place.change_set({"spec": {"replicas": 1}})
    eventually(lambda: len(place.vmis()) == 1)
    assert sorted(place.vmis()) == [second]
    eventually(lambda: place.reasons()["InvalidAnnotation"] == 1, what="a warning names it")
