"""The storage classes and quotas of a sandbox, as the API server and kube-controller-manager enforce them."""

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
