"""R11: the status is written only when it changes, and names the observed generation."""

from __future__ import annotations

import time

import pytest

from controller.runtime.triggers import COUNT_DELAY_S
from tests.integration.controller_process import ReplicaSetNamespace, eventually, stays, steady

pytestmark = pytest.mark.cluster


def status_writes(sets: ReplicaSetNamespace) -> int:
    return sum(record.subresource == "status" for record in sets.requests("patch"))


def test_r11_a_change_that_alters_no_count_writes_no_status(sets: ReplicaSetNamespace) -> None:
    sets.make_set(3)
    name = next(iter(sets.wait_for(3)))
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == 3, what="all are ready")
    before = steady(lambda: (status_writes(sets), sets.set()["metadata"]["resourceVersion"]), for_s=2.0)
    sets.change_vmi(name, {"metadata": {"annotations": {"note": "hello"}}})
    sets.change_vmi(name, {"status": {"guestOSInfo": {"name": "Fedora"}}})
    stays(lambda: (status_writes(sets), sets.set()["metadata"]["resourceVersion"]) == before, what="no write")


def test_r11_the_status_has_the_observed_generation(sets: ReplicaSetNamespace) -> None:
    sets.make_set(1)
    sets.wait_for(1)
    eventually(lambda: sets.status().get("observedGeneration") == 1)
    changed = sets.change_set({"spec": {"paused": True, "replicas": 2}})
    assert changed["metadata"]["generation"] == 2
    eventually(lambda: sets.status().get("observedGeneration") == 2)
    assert sets.status()["replicas"] == 1


def test_r11_an_overwritten_status_is_corrected(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    sets.wait_for(2)
    sets.change_status({"replicas": 7, "readyReplicas": 7})
    eventually(lambda: (sets.status().get("replicas"), sets.status().get("readyReplicas", 0)) == (2, 0))


def test_r11_one_hundred_vmis_that_become_ready_are_a_few_status_writes(sets: ReplicaSetNamespace) -> None:
    sets.make_set(100)
    sets.wait_for(100)
    before, began = status_writes(sets), time.monotonic()
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == 100, what="all are ready")
    took_s = time.monotonic() - began
    assert status_writes(sets) - before <= 10 + took_s / COUNT_DELAY_S
