"""The fields that KubeVirt's mutating webhooks fill in, compared with recordings of the real webhooks."""

import json
from itertools import count
from typing import Any

import pytest

from sandbox.virt_api.defaults import canonical, default_vm, default_vmi
from tests.sandbox.replay import RECORDINGS

NOW = "2026-11-21T20:04:02Z"


def recording(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The object as the client sent it, and the object as the server stored it. The fields that the API server adds are
    left out.
    """
    recorded = json.loads((RECORDINGS / f"{name}.json").read_text())
    stored = recorded["stored"]
    for field in ("creationTimestamp", "generation", "resourceVersion", "uid"):
        del stored["metadata"][field]
    return recorded["sent"], stored


def default_new_vmi(**spec: Any) -> dict[str, Any]:
    vmi = {"metadata": {"name": "vmi"}, "spec": {"domain": {}, **spec}}
    numbers = count()
    return default_vmi(vmi, now=NOW, new_uuid=lambda: f"uuid-{next(numbers)}")


def test_a_new_vm_is_stored_as_kubevirt_stores_it() -> None:
    sent, stored = recording("pool-vm-created")
    firmware = stored["spec"]["template"]["spec"]["domain"]["firmware"]
    given = iter([firmware["uuid"], firmware["serial"]])
    assert default_vm(sent, is_new=True, new_uuid=lambda: next(given)) == stored


def test_a_new_vmi_is_stored_as_kubevirt_stores_it() -> None:
    sent, stored = recording("replicaset-vmi-created")
    uuid = stored["spec"]["domain"]["firmware"]["uuid"]
    assert default_vmi(sent, now=NOW, new_uuid=lambda: uuid) == stored


def test_a_changed_vm_gets_no_new_firmware_identity() -> None:
    vm = {"metadata": {"name": "vm"}, "spec": {"template": {"spec": {"domain": {}}}}}
    spec = default_vm(vm, is_new=False, new_uuid=lambda: pytest.fail("asked for a UUID"))["spec"]["template"]["spec"]
    assert spec == {"architecture": "amd64", "domain": {"devices": {}, "machine": {"type": "q35"}, "resources": {}}}


def test_settings_of_the_user_stay() -> None:
    domain = {
        "machine": {"type": "pc-q35-rhel9"},
        "cpu": {"model": "Haswell", "sockets": 2, "cores": 2, "threads": 1, "maxSockets": 8},
        "firmware": {"uuid": "mine"},
        "features": {"acpi": {"enabled": False}},
    }
    spec = default_new_vmi(domain=domain, evictionStrategy="LiveMigrate", architecture="amd64")["spec"]
    assert {name: spec["domain"][name] for name in domain} == domain
    assert spec["evictionStrategy"] == "LiveMigrate"


@pytest.mark.parametrize(
    ("domain", "path", "stored"),
    [
        ({"resources": {"requests": {"memory": "1024Mi"}}}, "memory", {"guest": "1Gi", "maxGuest": "4Gi"}),
        ({"resources": {"limits": {"cpu": "1500m"}}}, "cpu", {"sockets": 2, "cores": 1, "maxSockets": 8}),
        ({"cpu": {"sockets": 2, "cores": 64, "threads": 2}}, "cpu", {"maxSockets": 4}),  # at most 512 in all
    ],
)
def test_requests_and_limits_size_the_guest(domain: dict[str, Any], path: str, stored: dict[str, Any]) -> None:
    vmi = default_new_vmi(domain=domain)
    assert stored.items() <= vmi["spec"]["domain"][path].items()
    if path == "memory":
        assert vmi["status"]["memory"]["guestAtBoot"] == stored["guest"]


def test_a_volume_without_a_disk_gets_a_disk() -> None:
    vmi = default_new_vmi(volumes=[{"name": "root", "containerDisk": {"image": "fedora"}}])
    assert vmi["spec"]["domain"]["devices"]["disks"] == [{"name": "root", "disk": {"bus": "sata"}}]
    assert vmi["spec"]["volumes"][0]["containerDisk"]["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(
    "spec", [{"networks": [{"name": "own"}]}, {"domain": {"devices": {"autoattachPodInterface": False}}}]
)
def test_a_vmi_with_its_own_networks_gets_no_default_network(spec: dict[str, Any]) -> None:
    stored = default_new_vmi(**spec)["spec"]
    assert stored.get("networks") == spec.get("networks")
    assert "interfaces" not in stored["domain"]["devices"]


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1024Mi", "1Gi"),
        ("0.5Gi", "512Mi"),
        ("64M", "64M"),
        ("2000M", "2G"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        (2, "2"),
        ("0", "0"),
        ("nonsense", "nonsense"),
    ],
)
def test_quantities_are_stored_in_canonical_form(written: str | int, stored: str) -> None:
    assert canonical(written) == stored
