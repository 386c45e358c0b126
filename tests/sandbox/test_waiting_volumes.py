"""Simulated DataVolumes that wait for a VMI, and DataVolumes that CDI deletes after their success."""

import pytest

from sandbox.claims import CLAIMS, WAITING_PHASE
from sandbox.datavolumes import DATA_VOLUMES, DELETE_AFTER_COMPLETION
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.sandbox.machines import Machines, vm_document


def machines_with(annotation: str, value: str, *, strategy: str = "Always") -> Machines:
    """A VM whose disk has this annotation."""
    document = vm_document(strategy=strategy, disks=("disk",))
    [template] = document["spec"]["dataVolumeTemplates"]
    template["metadata"]["annotations"] = {annotation: value}
    return Machines(document)


def phase(machines: Machines) -> str | None:
    return machines.get(DATA_VOLUMES, "disk").get("status", {}).get("phase")


@pytest.mark.parametrize("waiting", ["WaitForFirstConsumer", "PendingPopulation"])
def test_a_data_volume_waits_until_a_vmi_uses_its_pvc(waiting: str) -> None:
    machines = machines_with(WAITING_PHASE, waiting, strategy="Manual").live(5)
    assert phase(machines) == waiting
    assert "status" not in machines.get(CLAIMS, "disk")
    machines.patch(VMS, "vm", {"spec": {"runStrategy": "Always"}})
    machines.live(5)
    assert phase(machines) == "Succeeded"
    assert machines.get(CLAIMS, "disk")["status"]["phase"] == "Bound"
    assert machines.status()["ready"] is True


def test_an_unknown_waiting_phase_is_ignored() -> None:
    assert phase(machines_with(WAITING_PHASE, "Sometimes", strategy="Manual").live(5)) == "Succeeded"


def test_a_succeeded_data_volume_is_deleted_and_the_vm_owns_its_pvc() -> None:
    machines = machines_with(DELETE_AFTER_COMPLETION, "true").live(5)
    assert machines.document(DATA_VOLUMES, "disk") is None
    [owner] = machines.get(CLAIMS, "disk")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("VirtualMachine", machines.uid(VMS), True)
    assert machines.done("create", DATA_VOLUMES) == ["disk"]


def test_a_vm_whose_data_volume_is_deleted_starts_again() -> None:
    machines = machines_with(DELETE_AFTER_COMPLETION, "true").live(5)
    before = machines.uid(VMIS)
    machines.delete(VMIS, "vm")
    machines.live(5)
    assert machines.uid(VMIS) not in (None, before)
    assert machines.word == "Running"
