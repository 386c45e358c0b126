"""The storage classes and quotas of a sandbox, as the API server and kube-controller-manager enforce them."""

import json

import pytest

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster


def test_a_claim_is_bound_when_its_storage_class_exists(control_plane: ControlPlane, kubectl: Kubectl) -> None:
    name = f"late-{kubectl.namespace}"
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "late"}}
    resources = {"requests": {"storage": "1Gi"}}
    early = {**claim, "metadata": {"name": "early"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
    with simulator(control_plane):
        kubectl.create({**claim, "spec": {**early["spec"], "storageClassName": name}})
        kubectl.create(early)
        eventually(lambda: kubectl.json("get", "pvc", "early")["status"]["phase"] == "Bound")
        assert kubectl.json("get", "pvc", "late")["status"]["phase"] == "Pending"
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        kubectl.create({**kind, "provisioner": "sim.vmherd.dev"})
        eventually(lambda: kubectl.json("get", "pvc", "late")["status"]["phase"] == "Bound")
        kubectl("delete", "storageclass", name)


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
