"""Simulated DataVolumes and PVCs on the fake API server."""

from typing import Any

import pytest

from sandbox.claims import CLAIMS, PERSISTENT_VOLUMES, PROTECTION, WAITING_PHASE
from sandbox.datavolumes import DATA_VOLUMES, DELETE_AFTER_COMPLETION
from sandbox.settings import BEHAVIOR, READY_AFTER, RESIZE, RESIZE_AFTER
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.sandbox.machines import Machines, vm_document


def with_volume(spec: dict[str, Any] | None = None, **annotations: str) -> Machines:
    machines = Machines()
    names = {"ready_after": READY_AFTER, "behavior": BEHAVIOR, "resize_after": RESIZE_AFTER}
    meta = {"name": "disk", "annotations": {names[name]: value for name, value in annotations.items()}}
    machines.create(DATA_VOLUMES, {"metadata": meta, "spec": spec or {}})
    return machines


def use_claim(machines: Machines, behavior: str = "normal") -> None:
    """Create a VMI that uses the PVC."""
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]
    meta = {"name": "vmi", "annotations": {BEHAVIOR: behavior}}
    machines.create(VMIS, {"metadata": meta, "spec": {"volumes": volumes}})


def phase(machines: Machines) -> str | None:
    return machines.get(DATA_VOLUMES, "disk").get("status", {}).get("phase")


@pytest.mark.parametrize(
    ("spec", "modes", "size", "storage_class"),
    [
        ({}, ["ReadWriteOnce"], "1Gi", None),
        ({"storage": {"resources": {"requests": {"storage": "3Gi"}}}}, ["ReadWriteOnce"], "3Gi", None),
        ({"storage": {"accessModes": ["ReadWriteMany"], "storageClassName": "fast"}}, ["ReadWriteMany"], "1Gi", "fast"),
        (
            {"pvc": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": 5}}}},
            ["ReadOnlyMany"],
            5,
            None,
        ),
    ],
)
def test_a_pvc_has_the_spec_that_its_data_volume_requests(
    spec: dict[str, Any], modes: list[str], size: object, storage_class: str | None
) -> None:
    claim = with_volume(spec).live(1).get(CLAIMS, "disk")
    assert claim["spec"]["accessModes"] == claim["status"]["accessModes"] == modes
    assert claim["spec"]["resources"]["requests"] == claim["status"]["capacity"] == {"storage": size}
    assert claim["spec"].get("storageClassName") == storage_class


@pytest.mark.parametrize(
    ("annotations", "phases"),
    [
        ({}, [None, "Succeeded"]),
        ({"ready_after": "4s"}, [None, "ImportInProgress", "Succeeded"]),
        ({"behavior": "fail"}, [None, "Failed"]),
        ({"behavior": "never-ready"}, [None, "ImportInProgress"]),
        ({"behavior": "never-ready", "ready_after": "2s"}, [None, "ImportInProgress"]),
    ],
)
def test_a_data_volume_shows_the_phases_that_last(annotations: dict[str, str], phases: list[str | None]) -> None:
    machines, seen = with_volume(**annotations), [None]
    for _ in range(100):
        machines.live(0.1)
        if phase(machines) != seen[-1]:
            seen.append(phase(machines))
    assert seen == phases


def test_a_data_volume_succeeds_after_its_time() -> None:
    machines = with_volume(ready_after="4s").live(3.9)
    assert phase(machines) == "ImportInProgress"
    assert phase(machines.live(0.2)) == "Succeeded"
    assert machines.get(DATA_VOLUMES, "disk")["status"]["progress"] == "100.0%"


def test_an_existing_pvc_without_an_owner_is_adopted() -> None:
    machines = with_volume()
    machines.create(CLAIMS, {"metadata": {"name": "disk"}, "spec": {"accessModes": ["ReadWriteOnce"]}})
    assert phase(machines.live(2)) == "Succeeded"
    assert machines.done("create", CLAIMS) == []
    [owner] = machines.get(CLAIMS, "disk")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("DataVolume", machines.uid(DATA_VOLUMES, "disk"))


def test_a_data_volume_waits_while_a_foreign_pvc_has_its_name() -> None:
    machines = with_volume()
    other = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": True}
    machines.create(CLAIMS, {"metadata": {"name": "disk", "ownerReferences": [other]}, "spec": {}})
    assert phase(machines.live(2)) == "Pending"
    machines.delete(CLAIMS, "disk")
    assert phase(machines.live(2)) == "Succeeded"


def test_a_pvc_that_is_never_ready_stays_unbound_and_its_data_volume_pending() -> None:
    machines = with_volume()
    machines.create(CLAIMS, {"metadata": {"name": "disk", "annotations": {BEHAVIOR: "never-ready"}}, "spec": {}})
    assert phase(machines.live(5)) == "Pending"
    assert "status" not in machines.get(CLAIMS, "disk")


def test_a_deleted_pvc_stays_while_a_vmi_uses_it_or_a_foreign_finalizer_exists() -> None:
    machines = Machines()
    machines.create(CLAIMS, {"metadata": {"name": "disk", "finalizers": ["example.org/a"]}, "spec": {}})
    use_claim(machines)
    machines.live(5).delete(CLAIMS, "disk").live(5)
    assert machines.get(CLAIMS, "disk")["metadata"]["finalizers"] == ["example.org/a", PROTECTION]
    machines.delete(VMIS, "vmi").live(5)
    assert machines.get(CLAIMS, "disk")["metadata"]["finalizers"] == ["example.org/a"]


def test_a_vmi_that_has_ended_needs_no_pvc() -> None:
    machines = Machines()
    machines.create(CLAIMS, {"metadata": {"name": "disk"}, "spec": {}})
    use_claim(machines, "finish")
    machines.live(5).delete(CLAIMS, "disk").live(1)
    assert machines.document(CLAIMS, "disk") is None


def test_a_deleted_data_volume_is_not_changed() -> None:
    machines = with_volume()
    machines.get(DATA_VOLUMES, "disk")["metadata"]["finalizers"] = ["example.org/a"]
    machines.delete(DATA_VOLUMES, "disk")
    assert machines.live(5).steps == []


def bound_claim(mode: str | None = "Block", **annotations: str) -> Machines:
    """A bound PVC of 1Gi. `resize` and `resize_after` are annotations of the PVC."""
    machines = Machines()
    names = {"resize": RESIZE, "resize_after": RESIZE_AFTER}
    meta = {"name": "disk", "annotations": {names[name]: value for name, value in annotations.items()}}
    spec = {"volumeMode": mode, "resources": {"requests": {"storage": "1Gi"}}}
    machines.create(CLAIMS, {"metadata": meta, "spec": spec})
    return machines.live(1)


def grow(machines: Machines, size: str = "2Gi") -> Machines:
    return machines.patch(CLAIMS, "disk", {"spec": {"resources": {"requests": {"storage": size}}}})


def growth(machines: Machines) -> tuple[str, str, list[str]]:
    """The capacity of the PVC and of its volume, and the types of the PVC's conditions."""
    claim = machines.get(CLAIMS, "disk")
    volume = machines.get(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
    conditions = claim["status"].get("conditions", [])
    assert all(each["status"] == "True" for each in conditions)
    capacity = [each["storage"] for each in (claim["status"]["capacity"], volume["spec"]["capacity"])]
    return capacity[0], capacity[1], [each["type"] for each in conditions]


def test_a_bound_pvc_has_a_volume_of_its_own_that_goes_with_it() -> None:
    machines = bound_claim()
    claim = machines.get(CLAIMS, "disk")
    volume = machines.get(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    machines.delete(CLAIMS, "disk").live(1)
    assert machines.server.documents(PERSISTENT_VOLUMES) == {}


def test_a_new_pvc_waits_until_the_volume_of_its_predecessor_is_gone() -> None:
    machines = with_volume().live(1)
    machines.delete(CLAIMS, "disk").live(1)
    claim = machines.get(CLAIMS, "disk")
    assert claim["status"]["phase"] == "Bound"
    [volume] = machines.server.documents(PERSISTENT_VOLUMES).values()
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]


def test_a_pvc_grows_after_a_while_and_its_data_volume_stays_as_it_was() -> None:
    machines = with_volume({"storage": {"resources": {"requests": {"storage": "1Gi"}}}}, resize_after="3s").live(1)
    before = machines.get(DATA_VOLUMES, "disk")
    grow(machines).live(2)
    assert growth(machines) == ("1Gi", "1Gi", ["Resizing"])
    assert machines.get(CLAIMS, "disk")["status"]["allocatedResources"] == {"storage": "2Gi"}
    assert growth(machines.live(2)) == ("2Gi", "2Gi", [])
    assert "allocatedResourceStatuses" not in machines.get(CLAIMS, "disk")["status"]
    assert machines.get(DATA_VOLUMES, "disk") == before


@pytest.mark.parametrize("mode", ["Filesystem", None])
def test_a_file_system_grows_when_a_vmi_runs_on_it(mode: str | None) -> None:
    machines = grow(bound_claim(mode)).live(5)
    assert growth(machines) == ("1Gi", "2Gi", ["Resizing", "FileSystemResizePending"])
    use_claim(machines)
    assert growth(machines.live(5)) == ("2Gi", "2Gi", [])


@pytest.mark.parametrize(
    ("resize", "conditions"), [("hang", ["Resizing"]), ("fail", ["Resizing", "ControllerResizeError"])]
)
def test_a_resize_that_hangs_or_fails_goes_on_without_the_annotation(resize: str, conditions: list[str]) -> None:
    machines = grow(bound_claim(resize=resize)).live(5)
    assert growth(machines) == ("1Gi", "1Gi", conditions)
    machines.patch(CLAIMS, "disk", {"metadata": {"annotations": {RESIZE: None}}})
    assert growth(machines.live(5)) == ("2Gi", "2Gi", [])


def test_a_pvc_grows_again_while_it_grows() -> None:
    assert growth(grow(grow(bound_claim(resize_after="3s")).live(1), "3Gi").live(4)) == ("3Gi", "3Gi", [])


@pytest.mark.parametrize(
    ("spec", "mode", "size"),
    [
        ({"storage": {}}, "Block", "1Gi"),
        ({"storage": {"volumeMode": "Filesystem"}}, "Filesystem", "1138166334"),
        ({"pvc": {}}, None, "1Gi"),
    ],
)
def test_a_file_system_has_room_for_the_disk_that_the_data_volume_requests(
    spec: dict[str, Any], mode: str | None, size: str
) -> None:
    claim = with_volume(spec).live(1).get(CLAIMS, "disk")["spec"]
    assert (claim.get("volumeMode"), claim["resources"]["requests"]["storage"]) == (mode, size)


def test_a_larger_disk_in_a_vm_changes_neither_its_data_volume_nor_the_running_vmi() -> None:
    machines = Machines(vm_document(disks=("disk",))).live(5)
    before = [machines.get(resource, "disk") for resource in (DATA_VOLUMES, CLAIMS)]
    [template] = machines.get(VMS)["spec"]["dataVolumeTemplates"]
    larger = template | {"spec": {"storage": {"resources": {"requests": {"storage": "9Gi"}}}}}
    machines.patch(VMS, "vm", {"spec": {"dataVolumeTemplates": [larger]}}).live(5)
    assert [machines.get(resource, "disk") for resource in (DATA_VOLUMES, CLAIMS)] == before
    assert "RestartRequired" not in [each["type"] for each in machines.status()["conditions"]]
    assert machines.word == "Running"


def machines_with(annotation: str, value: str, *, strategy: str = "Always") -> Machines:
    """A VM whose disk has this annotation."""
    document = vm_document(strategy=strategy, disks=("disk",))
    [template] = document["spec"]["dataVolumeTemplates"]
    template["metadata"]["annotations"] = {annotation: value}
    return Machines(document)


@pytest.mark.parametrize("waiting", ["WaitForFirstConsumer", "PendingPopulation"])
def test_a_data_volume_waits_until_a_vmi_uses_its_pvc(waiting: str) -> None:
    machines = machines_with(WAITING_PHASE, waiting, strategy="Manual").live(5)
    assert phase(machines) == waiting
    assert "status" not in machines.get(CLAIMS, "disk")
    machines.patch(VMS, "vm", {"spec": {"runStrategy": "Always"}}).live(5)
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
    machines.delete(VMIS, "vm").live(5)
    assert machines.uid(VMIS) not in (None, before)
    assert machines.word == "Running"
