"""The objects of the soak, and their API paths. The objects are replica sets and pools with names that are never used
twice.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from controller.kubevirt.annotations import ROLLING_UPDATE
from sandbox.admin import Admin
from sandbox.settings import BEHAVIOR, TIME_SCALE

Kind: TypeAlias = Literal["set", "pool"]

MERGE: Final = "application/merge-patch+json"
APP: Final = "app"


class Herd(Struct):
    """One replica set or pool of the load.

    If `sick` is True, the VMs fail again and again, so the set or pool never becomes ready.
    """

    kind: Kind
    namespace: str
    name: str
    replicas: int
    disks: bool = False
    sick: bool = False
    memory: int = 64
    paused: bool = False

    @property
    def path(self) -> str:
        return f"{collection(self.kind, self.namespace)}/{self.name}"

    @property
    def template_field(self) -> str:
        return "template" if self.kind == "set" else "virtualMachineTemplate"

    def template(self) -> dict[str, Any]:
        labels = {APP: self.name}
        vmi: dict[str, Any] = {
            "metadata": {"labels": labels},
            "spec": {"domain": {"resources": {"requests": {"memory": f"{self.memory}M"}}}},
        }
        if self.sick:
            vmi["metadata"]["annotations"] = {BEHAVIOR: "crash-loop", TIME_SCALE: "0.05"}
        if self.kind == "set":
            return vmi
        vm: dict[str, Any] = {"runStrategy": "Always", "template": vmi}
        if self.disks:
            disk = f"{self.name}-root"
            vmi["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": disk}}]
            vmi["spec"]["domain"]["devices"] = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            vm["dataVolumeTemplates"] = [{"metadata": {"name": disk}, "spec": {"pvc": claim, "source": {"blank": {}}}}]
        return {"metadata": {"labels": labels}, "spec": vm}

    def manifest(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "replicas": self.replicas,
            "paused": self.paused,
            "selector": {"matchLabels": {APP: self.name}},
            self.template_field: self.template(),
        }
        metadata: dict[str, Any] = {"name": self.name}
        if self.kind == "set":
            metadata["annotations"] = {ROLLING_UPDATE: "maxUnavailable=50%"}
            version, kind = "kubevirt.io/v1", "VirtualMachineInstanceReplicaSet"
        else:
            version, kind = "pool.kubevirt.io/v1beta1", "VirtualMachinePool"
            spec["maxUnavailable"] = "50%"
            spec["autohealing"] = {"startUpFailureThreshold": 2, "minFailingToStartDuration": "2s"}
            if self.disks:
                spec["scaleInStrategy"] = {"proactive": {"statePreservation": "Offline"}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def collection(kind: Kind, namespace: str) -> str:
    if kind == "set":
        return f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstancereplicasets"
    return f"/apis/pool.kubevirt.io/v1beta1/namespaces/{namespace}/virtualmachinepools"


def machines(kind: Kind, namespace: str) -> str:
    """Return the path of all VMs for the kind `pool`, or of all VMIs for the kind `set`."""
    plural = "virtualmachineinstances" if kind == "set" else "virtualmachines"
    return f"/apis/kubevirt.io/v1/namespaces/{namespace}/{plural}"


def storage(namespace: str) -> tuple[str, str]:
    """Return the paths of the disks: DataVolumes and PersistentVolumeClaims."""
    volumes = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes"
    return volumes, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"


class Api:
    """Sends the requests of the load. Each method raises Rejected or Unanswered."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def create(self, path: str, body: dict[str, Any]) -> None:
        self._admin.send("POST", path, json.dumps(body).encode(), "application/json")

    def patch(self, path: str, change: dict[str, Any]) -> None:
        self._admin.send("PATCH", path, json.dumps(change).encode(), MERGE)

    def delete(self, path: str, propagation: str = "Background") -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        self._admin.send("DELETE", path, json.dumps(options).encode(), "application/json")

    def get(self, path: str) -> Any:
        return self._admin.get(path)

    def list(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._admin.get(path)["items"]
        return items
