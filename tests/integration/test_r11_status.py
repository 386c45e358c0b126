"""R11: the status is written when it changes, and tells which generation it is about."""

from __future__ import annotations

import pytest

from tests.integration.herd import Place, eventually, stays, steady

pytestmark = pytest.mark.cluster


def status_writes(place: Place) -> int:
    return sum(record.subresource == "status" for record in place.requests("patch"))


def test_r11_a_change_that_alters_no_count_writes_no_status(place: Place) -> None:
    place.make_set(3)
    name = next(iter(place.wait_for(3)))
    place.play_all()
    eventually(lambda: place.status().get("readyReplicas") == 3, what="all are ready")
    before = steady(lambda: (status_writes(place), place.set()["metadata"]["resourceVersion"]))
    place.change_vmi(name, {"metadata": {"annotations": {"note": "hello"}}})
    place.change_vmi(name, {"status": {"guestOSInfo": {"name": "Fedora"}}})
    stays(lambda: (status_writes(place), place.set()["metadata"]["resourceVersion"]) == before, what="no write")


def test_r11_the_status_tells_which_generation_it_is_about(place: Place) -> None:
    place.make_set(1)
    place.wait_for(1)
    eventually(lambda: place.status().get("observedGeneration") == 1)
    changed = place.change_set({"spec": {"paused": True, "replicas": 2}})
    assert changed["metadata"]["generation"] == 2
    eventually(lambda: place.status().get("observedGeneration") == 2)
    assert place.status()["replicas"] == 1


def test_r11_a_status_that_somebody_overwrites_is_put_right(place: Place) -> None:
    place.make_set(2)
    place.wait_for(2)
    patch = '{"status":{"replicas":7,"readyReplicas":7}}'
    place.kubectl("patch", "vmirs", "herd", "--subresource=status", "--type=merge", "-p", patch)
    eventually(lambda: (place.status().get("replicas"), place.status().get("readyReplicas", 0)) == (2, 0))


def test_r11_one_hundred_vmis_that_become_ready_are_a_few_status_writes(place: Place) -> None:
    place.make_set(100)
    place.wait_for(100)
    before = status_writes(place)
    place.play_all()
    eventually(lambda: place.status().get("readyReplicas") == 100, what="all are ready")
    assert status_writes(place) - before <= 20
