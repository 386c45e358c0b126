"""R11: the conditions of kstatus on sets."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, steady
from tests.kstatus import kstatus_of

pytestmark = pytest.mark.cluster

DEADLINE = {"vmherd.dev/progress-deadline-seconds": "3"}
PULL = {"type": "Synchronized", "status": "False", "reason": "ImagePullBackOff", "message": "Back-off pulling image"}


def status_writes(sets: ReplicaSetNamespace) -> int:
    return sum(record.subresource == "status" for record in sets.requests("patch"))


def test_r11_a_set_is_in_progress_then_stalled_then_current(sets: ReplicaSetNamespace) -> None:
    assert kstatus_of(sets.make_set(2, annotations=DEADLINE)).status == "InProgress"
    first = min(sets.wait_for(2))
    for number in (7, 8):
        change = {"status": {"phase": "Scheduling", "conditions": [{**PULL, "message": f"{PULL['message']} {number}"}]}}
        sets.change_vmi(first, change)
    problem = f"{first}: ImagePullBackOff, Back-off pulling image"
    eventually(lambda: sets.status().get("problem", "").startswith(problem), what="the problem in the status")
    assert sets.status()["printableStatus"] == "Degraded"
    eventually(lambda: kstatus_of(sets.set()).status == "Failed", what="the set is stalled")
    assert (sets.condition("Stalled") or {})["message"].startswith(problem)
    before = steady(lambda: status_writes(sets), for_s=2.0)
    sets.change_vmi(first, {"status": {"conditions": [{**PULL, "message": "Back-off pulling image 9"}]}})
    assert steady(lambda: status_writes(sets)) == before, "a new message alone causes no write"
    sets.play_all()
    eventually(lambda: kstatus_of(sets.set()).status == "Current", what="the set is current")
    status = sets.status()
    assert (status["printableStatus"], status["currentRevision"]) == ("Running", status["updateRevision"])
    assert not {"conditions", "problem"} & status.keys()


def test_r11_a_paused_set_has_only_the_condition_of_the_pause(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    sets.wait_for(2)
    sets.change_set({"spec": {"paused": True}})
    eventually(lambda: [each["type"] for each in sets.status().get("conditions", ())] == ["ReplicaPaused"])
    assert kstatus_of(sets.set()).status == "Current"
