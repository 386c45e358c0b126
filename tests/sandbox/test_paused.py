"""VMIs that are paused by a user or by an I/O error."""

import pytest

from sandbox.settings import BEHAVIOR, DETAIL
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.fakes.requests import Document
from tests.sandbox.machines import Machines, vm_document


def conditions(document: Document) -> dict[str, tuple[str, str | None]]:
    return {each["type"]: (each["status"], each.get("reason")) for each in document["status"]["conditions"]}


def set_behavior(machines: Machines, behavior: str | None) -> None:
    machines.patch(VMIS, "vm", {"metadata": {"annotations": {BEHAVIOR: behavior}}})
    machines.live(3)


@pytest.mark.parametrize("detail", ["short", "full"])
@pytest.mark.parametrize(("behavior", "reason"), [("paused", "PausedByUser"), ("io-error", "PausedIOError")])
def test_a_paused_vmi_and_its_vm_are_not_ready_until_the_vmi_goes_on(behavior: str, reason: str, detail: str) -> None:
    machines = Machines(vm_document(annotations={DETAIL: detail})).live(5)
    before = machines.uid(VMIS)
    set_behavior(machines, behavior)
    for document in (machines.get(VMIS), machines.get(VMS)):
        told = conditions(document)
        assert told["Paused"] == ("True", reason)
        assert told["Ready"] == ("False", "ReadinessGatesNotReady")
    assert machines.get(VMIS)["status"]["phase"] == "Running"
    assert (machines.word, machines.status().get("ready")) == ("Paused", None)
    set_behavior(machines, None)
    for document in (machines.get(VMIS), machines.get(VMS)):
        assert "Paused" not in conditions(document)
        assert conditions(document)["Ready"] == ("True", None)
    assert (machines.word, machines.status()["ready"], machines.uid(VMIS)) == ("Running", True, before)


def test_a_paused_vmi_can_be_deleted() -> None:
    machines = Machines(vm_document()).live(5)
    before = machines.uid(VMIS)
    set_behavior(machines, "paused")
    machines.delete(VMIS, "vm")
    machines.live(5)
    assert machines.uid(VMIS) not in (None, before)
    assert machines.word == "Running"
