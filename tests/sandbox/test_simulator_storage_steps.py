"""Simulated DataVolumes and PVCs on the fake API server."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.datavolumes import CLAIMS, DATA_VOLUMES, PROTECTION
from sandbox.settings import BEHAVIOR, READY_AFTER
from sandbox.vmis import VMIS
from tests.sandbox.machines import Machines


def with_volume(spec: dict[str, Any] | None = None, **annotations: str) -> Machines:
    machines = Machines()
    names = {"ready_after": READY_AFTER, "behavior": BEHAVIOR}
    meta = {"name": "disk", "annotations": {names[name]: value for name, value in annotations.items()}}
    machines.create(DATA_VOLUMES, {"metadata": meta, "spec": spec or {}})
    return machines


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
    claim = {"metadata": {"name": "disk", "finalizers": ["example.org/a"]}, "spec": {}}
    machines.create(CLAIMS, claim)
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]
    machines.create(VMIS, {"metadata": {"name": "vmi"}, "spec": {"volumes": volumes}})
    machines.live(5).delete(CLAIMS, "disk")
    machines.live(5)
    assert machines.get(CLAIMS, "disk")["metadata"]["finalizers"] == ["example.org/a", PROTECTION]
    machines.delete(VMIS, "vmi")
    machines.live(5)
    assert machines.get(CLAIMS, "disk")["metadata"]["finalizers"] == ["example.org/a"]


def test_a_vmi_that_has_ended_needs_no_pvc() -> None:
    machines = Machines()
    machines.create(CLAIMS, {"metadata": {"name": "disk"}, "spec": {}})
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]
    meta = {"name": "vmi", "annotations": {BEHAVIOR: "finish"}}
    machines.create(VMIS, {"metadata": meta, "spec": {"volumes": volumes}})
    machines.live(5).delete(CLAIMS, "disk")
    machines.live(1)
    assert machines.document(CLAIMS, "disk") is None


def test_a_deleted_data_volume_is_not_changed() -> None:
    machines = with_volume()
    machines.get(DATA_VOLUMES, "disk")["metadata"]["finalizers"] = ["example.org/a"]
    machines.delete(DATA_VOLUMES, "disk")
    assert machines.live(5).steps == []
