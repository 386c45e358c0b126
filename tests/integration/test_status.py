"""R11, P17: the status is written when it changes and only then, and names the observed generation."""

import time

import pytest

from controller.runtime.triggers import COUNT_DELAY_S
from tests.controlplane.namespace import Namespace, SetNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster


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
