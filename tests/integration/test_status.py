"""R11, P17: the status is written when it changes and only then, and names the observed generation."""

import time

import pytest

from controller.runtime.triggers import COUNT_DELAY_S
from tests.controlplane.namespace import Namespace, SetNamespace
from tests.controlplane.waits import eventually, reacts
from tests.kstatus import kstatus_of

pytestmark = pytest.mark.cluster

DEADLINE = {"vmherd.dev/progress-deadline-seconds": "3"}
PULL = {"type": "Synchronized", "status": "False", "reason": "ImagePullBackOff", "message": "Back-off pulling image"}


def test_r11_p17_a_change_that_alters_no_count_writes_no_status(owner: Namespace) -> None:
    owner.make(3)
    owner.wait_ready(3)
    name = min(owner.vmis())
    with owner.at_rest():
        owner.vmis.change(name, {"metadata": {"annotations": {"note": "hello"}}})
        owner.vmis.change(name, {"status": {"guestOSInfo": {"name": "Fedora"}}})
        owner.all_of(owner.members).change(name, {"metadata": {"annotations": {"other": "note"}}})


def test_r11_one_hundred_vmis_that_become_ready_are_a_few_status_writes(sets: SetNamespace) -> None:
    sets.make(100)
    sets.wait_for(100)
    sets.settle()
    before, began = sets.plane.audit_position(), time.monotonic()
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == 100, within_s=20, what="all are ready")
    took_s = time.monotonic() - began
    writes = [record for record in sets.requests("patch", since=before) if record.subresource == "status"]
    assert len(writes) <= 10 + took_s / COUNT_DELAY_S


def test_r11_a_set_is_in_progress_then_stalled_then_current(sets: SetNamespace) -> None:
    assert kstatus_of(sets.make(2, annotations=DEADLINE)).status == "InProgress"
    first = min(sets.wait_for(2))
    for number in (7, 8):
        condition = {**PULL, "message": f"{PULL['message']} {number}"}
        sets.vmis.change(first, {"status": {"phase": "Scheduling", "conditions": [condition]}})
    problem = f"{first}: ImagePullBackOff, Back-off pulling image"
    reacts(lambda: sets.status().get("problem", "").startswith(problem), what="the problem in the status")
    assert sets.status()["printableStatus"] == "Degraded"
    eventually(lambda: kstatus_of(sets.read()).status == "Failed", within_s=10, what="the set is stalled")
    assert (sets.condition("Stalled") or {})["message"].startswith(problem)
    with sets.at_rest():
        sets.vmis.change(first, {"status": {"conditions": [{**PULL, "message": "Back-off pulling image 9"}]}})
    sets.play_all()
    reacts(lambda: kstatus_of(sets.read()).status == "Current", what="the set is current")
    status = sets.status()
    assert (status["printableStatus"], status["currentRevision"]) == ("Running", status["updateRevision"])
    assert not {"conditions", "problem"} & status.keys()
