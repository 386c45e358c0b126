"""The storage classes and quotas of a sandbox, as the API server and kube-controller-manager enforce them."""

import json
import subprocess
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

STANDARD, FIXED_SIZE = "standard", "fixed-size"


def data_volume(name: str, storage_class: str | None) -> dict[str, Any]:
    storage = {"storageClassName": storage_class, "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {"storage": {key: value for key, value in storage.items() if value}},
    }


def claim(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("get", "pvc", name)
    return found


def resize(kubectl: Kubectl, name: str, size: str) -> subprocess.CompletedProcess[str]:
    patch = {"spec": {"resources": {"requests": {"storage": size}}}}
    return kubectl("patch", "pvc", name, "--type=merge", f"--patch={json.dumps(patch)}", check=False)


@pytest.mark.newest
def test_the_api_server_lets_bound_pvcs_of_the_default_class_grow(
    control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    own = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "own"}}
    own["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    kubectl.create(own)
    assert claim(kubectl, "own")["spec"]["storageClassName"] == STANDARD
    assert "spec is immutable after creation except resources.requests" in resize(kubectl, "own", "2Gi").stderr
    late = f"late-{kubectl.namespace}"
    with simulator(control_plane):
        kubectl.create(data_volume("late", late))
        kubectl.create(data_volume("disk", None))
        kubectl.create(data_volume("fixed", FIXED_SIZE))
        for name, storage_class in {"own": STANDARD, "disk": STANDARD, "fixed": FIXED_SIZE}.items():
            eventually(lambda name=name: kubectl("get", "pvc", name, check=False).returncode == 0)
            eventually(lambda name=name: claim(kubectl, name)["status"]["phase"] == "Bound")
            assert claim(kubectl, name)["spec"]["storageClassName"] == storage_class
        assert claim(kubectl, "late")["status"]["phase"] == "Pending"
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": late}}
        kubectl.create({**kind, "provisioner": "sim.vmherd.dev"})
        eventually(lambda: claim(kubectl, "late")["status"]["phase"] == "Bound", what="its StorageClass exists")
        kubectl("delete", "storageclass", late)
        assert resize(kubectl, "disk", "2Gi").returncode == 0
        eventually(lambda: claim(kubectl, "disk")["status"]["capacity"] == {"storage": "2Gi"}, what="the PVC grows")
        volume = kubectl.json("get", "pv", claim(kubectl, "disk")["spec"]["volumeName"])
        assert (volume["spec"]["capacity"], volume["status"]["phase"]) == ({"storage": "2Gi"}, "Bound")
        assert resize(kubectl, "own", "2Gi").returncode == 0
        eventually(lambda: "FileSystemResizePending" in str(claim(kubectl, "own")["status"]))
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support"
        )
        assert (
            f'Forbidden): persistentvolumeclaims "fixed" is forbidden: {why} resize'
            in resize(kubectl, "fixed", "2Gi").stderr
        )
        assert "field can not be less than status.capacity" in resize(kubectl, "disk", "1Gi").stderr
        kubectl("delete", "datavolume", "disk", "fixed", "late")
        kubectl("delete", "pvc", "own")
        eventually(lambda: not kubectl.json("get", "pvc")["items"], what="the PVCs go")
        eventually(
            lambda: (
                kubectl.namespace
                not in [each["spec"]["claimRef"]["namespace"] for each in kubectl.json("get", "pv")["items"]]
            ),
            what="the PersistentVolumes go",
        )


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance"])
def test_a_quota_shows_used_objects_and_refuses_dry_runs_too(kubectl: Kubectl, kind: str) -> None:
    counted = f"count/{kind.lower()}s.kubevirt.io"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {counted: "1"}}}
    spec = {"template": {"spec": {"domain": {}}}, "runStrategy": "Halted"}
    vm = {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": "first"}}
    vm["spec"] = spec if kind == "VirtualMachine" else {"domain": {}}
    kubectl.create(quota)
    eventually(lambda: kubectl.json("get", "quota", "few").get("status", {}).get("used") == {counted: "0"})
    kubectl.create(vm)
    eventually(lambda: f"{counted}: 1/1" in kubectl("get", "quota", "few").stdout)
    second = json.dumps({**vm, "metadata": {"name": "second"}})
    refused = kubectl("create", "--dry-run=server", "--filename=-", stdin=second, check=False)
    assert f"exceeded quota: few, requested: {counted}=1, used: {counted}=1, limited: {counted}=1" in refused.stderr
    kubectl("delete", kind.lower(), "first")
    eventually(lambda: f"{counted}: 0/1" in kubectl("get", "quota", "few").stdout)
    kubectl("create", "--dry-run=server", "--filename=-", stdin=second)
