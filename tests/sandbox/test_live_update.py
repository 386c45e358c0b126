"""Changes of a running VM's spec. Some changes reach the running VMI at once, and others need a restart."""

from typing import Any

import pytest

from controller.kubevirt.resources import CONTROLLER_REVISIONS
from sandbox import live_update
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.fakes.requests import Document
from tests.sandbox.machines import Machines, vm_document

MASQUERADE = {"interfaces": [{"name": "default", "masquerade": {}}]}


def running(**domain: Any) -> Machines:
    """A running VM with this domain. The VMI can migrate if the domain permits it."""
    document = vm_document()
    document["spec"]["template"]["spec"]["domain"] = {"devices": MASQUERADE, **domain}
    return Machines(document).live(5)


def change(machines: Machines, spec: Document) -> None:
    machines.patch(VMS, "vm", {"spec": {"template": {"spec": spec}}}).live(5)


def condition(document: Document, type_: str) -> Document | None:
    return next((each for each in document["status"]["conditions"] if each["type"] == type_), None)


def required(machines: Machines) -> str | None:
    found = condition(machines.get(VMS), "RestartRequired")
    assert found is None or found["status"] == "True"
    return None if found is None else str(found["message"])


@pytest.mark.parametrize(
    ("domain", "path", "value", "type_"),
    [
        ({"cpu": {"sockets": 1}}, ("cpu", "sockets"), 2, "HotVCPUChange"),
        ({"memory": {"guest": "1Gi"}}, ("memory", "guest"), "2Gi", "HotMemoryChange"),
        ({"memory": {"guest": "128Mi", "maxGuest": "1Gi"}}, ("memory", "guest"), "256Mi", "HotMemoryChange"),
    ],
)
def test_a_running_vmi_takes_over_more_sockets_and_more_memory(
    domain: Document, path: tuple[str, str], value: object, type_: str
) -> None:
    machines = running(**domain)
    before = machines.uid(VMIS)
    change(machines, {"domain": {path[0]: {path[1]: value}}})
    vmi = machines.get(VMIS)
    assert (vmi["spec"]["domain"][path[0]][path[1]], vmi["metadata"]["uid"]) == (value, before)
    assert condition(vmi, type_) == condition(machines.get(VMS), type_)
    assert condition(vmi, type_) is not None
    assert required(machines) is None


def test_a_running_vmi_takes_over_its_placement() -> None:
    machines = running()
    change(machines, {"nodeSelector": {"a": "1", "b": "2"}, "tolerations": [{"key": "x", "operator": "Exists"}]})
    change(machines, {"nodeSelector": {"a": None}})
    spec = machines.get(VMIS)["spec"]
    assert spec["nodeSelector"] == {"b": "2"}
    assert spec["tolerations"] == [{"key": "x", "operator": "Exists"}]
    assert required(machines) is None


@pytest.mark.parametrize(
    ("domain", "spec", "message"),
    [
        ({}, {"domain": {"machine": {"type": "q35"}}}, live_update.OTHER_FIELD),
        ({}, {"domain": {"resources": {"requests": {"memory": "64M"}}}}, live_update.OTHER_FIELD),
        ({}, {"domain": {"cpu": {"sockets": 2}}}, live_update.OTHER_FIELD),
        ({"cpu": {"sockets": 1}}, {"domain": {"cpu": {"cores": 2}}}, live_update.OTHER_FIELD),
        ({"cpu": {"sockets": 2}}, {"domain": {"cpu": {"sockets": 1}}}, live_update.FEWER_SOCKETS),
        ({"cpu": {"sockets": 1}}, {"domain": {"cpu": {"sockets": 5}}}, live_update.TOO_MANY_SOCKETS),
        ({"memory": {"guest": "1Gi"}}, {"domain": {"memory": {"guest": "512Mi"}}}, live_update.LESS_MEMORY),
        ({"memory": {"guest": "1Gi"}}, {"domain": {"memory": {"guest": "5Gi"}}}, live_update.TOO_MUCH_MEMORY),
        ({"memory": {"guest": "128Mi"}}, {"domain": {"memory": {"guest": "256Mi"}}}, live_update.NO_HOTPLUG),
        (
            {"memory": {"guest": "1Gi"}, "devices": {}},
            {"domain": {"memory": {"guest": "2Gi"}}},
            live_update.NOT_MIGRATABLE,
        ),
    ],
)
def test_a_change_that_a_running_vmi_cannot_take_over_needs_a_restart(
    domain: Document, spec: Document, message: str
) -> None:
    machines = running(**domain)
    before = machines.get(VMIS)["spec"]
    change(machines, spec)
    assert required(machines) == message
    assert machines.get(VMIS)["spec"] == before
    assert machines.word == "Running"


def test_a_restart_ends_the_need_for_a_restart() -> None:
    machines = running()
    change(machines, {"domain": {"machine": {"type": "q35"}}})
    machines.delete(VMIS, "vm").live(5)
    assert required(machines) is None
    assert machines.get(VMIS)["spec"]["domain"]["machine"] == {"type": "q35"}


def test_a_change_that_is_undone_needs_no_restart() -> None:
    machines = running()
    change(machines, {"domain": {"machine": {"type": "q35"}}})
    change(machines, {"domain": {"machine": None}})
    assert required(machines) is None
    assert machines.get(VMIS)["metadata"]["annotations"]["kubevirt.io/vm-generation"] == "3"


def test_another_spelling_of_the_same_template_needs_no_restart() -> None:
    machines = running(memory={"guest": "1Gi"})
    change(machines, {"domain": {"resources": {}, "memory": {"guest": "1024Mi"}}})
    assert required(machines) is None
    assert machines.get(VMIS)["spec"]["domain"]["memory"] == {"guest": "1Gi"}


def test_another_instancetype_needs_a_restart() -> None:
    machines = running()
    machines.patch(VMS, "vm", {"spec": {"instancetype": {"name": "u1.large"}}}).live(5)
    assert required(machines) == live_update.OTHER_FIELD


def test_a_second_hotplug_fails_while_the_first_is_under_way() -> None:
    machines = running(cpu={"sockets": 1})
    change(machines, {"domain": {"cpu": {"sockets": 2}}})
    change(machines, {"domain": {"cpu": {"sockets": 3}}})
    failure = condition(machines.get(VMS), "Failure")
    assert failure is not None
    assert failure["reason"] == "HotPlugCPUError"
    assert machines.get(VMIS)["spec"]["domain"]["cpu"]["sockets"] == 2


@pytest.mark.parametrize("source", ["dataVolume", "persistentVolumeClaim"])
def test_a_volume_that_can_be_plugged_into_a_running_vmi_needs_no_restart(source: str) -> None:
    machines = running()
    before = machines.get(VMIS)
    plugged = {"name": "more", source: {"name": "more", "claimName": "more", "hotpluggable": True}}
    for volumes, disks in (([plugged], [{"name": "more", "disk": {}}]), ([], [])):
        change(machines, {"volumes": volumes, "domain": {"devices": {"disks": disks}}})
        assert required(machines) is None
        vmi = machines.get(VMIS)
        assert vmi["spec"].get("volumes") == volumes
        assert vmi["spec"]["domain"]["devices"] == MASQUERADE | {"disks": disks}
        assert vmi["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_medium_leaves_its_cd_rom_without_a_restart_but_the_cd_rom_stays() -> None:
    machines = running()
    medium = {"name": "cd", "persistentVolumeClaim": {"claimName": "cd", "hotpluggable": True}}
    drive = {"domain": {"devices": {"disks": [{"name": "cd", "cdrom": {}}]}}}
    machines.patch(VMS, "vm", {"spec": {"template": {"spec": {"volumes": [medium], **drive}}}})
    machines.delete(VMIS, "vm").live(5)
    change(machines, {"volumes": []})
    assert required(machines) is None
    change(machines, {"domain": {"devices": {"disks": []}}})
    assert required(machines) == live_update.OTHER_FIELD


def test_the_start_of_a_vm_is_recorded_in_one_revision_with_the_vms_spec() -> None:
    machines = running()
    uid = machines.uid(VMS)
    change(machines, {"domain": {"machine": {"type": "q35"}}})
    assert list(machines.server.documents(CONTROLLER_REVISIONS)) == [f"revision-start-vm-{uid}-1"]
    machines.delete(VMIS, "vm").live(5)
    [revision] = machines.server.documents(CONTROLLER_REVISIONS).values()
    assert revision["metadata"]["name"] == f"revision-start-vm-{uid}-2"
    assert revision["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "name": "vm",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert revision["data"] == {"spec": machines.get(VMS)["spec"]}
    assert revision["revision"] == 2
    assert machines.get(VMIS)["status"]["virtualMachineRevisionName"] == revision["metadata"]["name"]
