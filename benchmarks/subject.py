"""The objects of the benchmarks: the replica set, a new VMI, and a VMI of a running cluster."""

from __future__ import annotations

import json
from typing import Any

SET_NAME = "burst"
LABELS = {"vmherd.dev/bench": SET_NAME}
SPEC: dict[str, Any] = {
    "domain": {
        "cpu": {"cores": 1},
        "devices": {
            "disks": [
                {"name": "containerdisk", "disk": {"bus": "virtio"}},
                {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
            ],
            "interfaces": [{"name": "default", "masquerade": {}}],
        },
        "resources": {"limits": {"cpu": "300m"}, "requests": {"cpu": "100m", "memory": "265Mi"}},
    },
    "networks": [{"name": "default", "pod": {}}],
    "volumes": [
        {"name": "containerdisk", "containerDisk": {"image": "kubevirt/cirros-container-disk-demo:latest"}},
        {"name": "cloudinitdisk", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
    ],
}


def replica_set(replicas: int) -> dict[str, Any]:
    """The replica set as a user would apply it."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": SET_NAME},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": SPEC},
        },
    }


def pool(replicas: int) -> dict[str, Any]:
    """The pool as a user would apply it."""
    inner = {"metadata": {"labels": LABELS}, "spec": SPEC}
    template = {"metadata": {"labels": LABELS}, "spec": {"runStrategy": "Always", "template": inner}}
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": SET_NAME},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "virtualMachineTemplate": template},
    }


def vm_body(name: str) -> bytes:
    """Return a VM as the controller creates it for the pool, as JSON, without an owner."""
    spec = pool(1)["spec"]["virtualMachineTemplate"]["spec"]
    labels = {**LABELS, "kubevirt.io/vm-pool-revision-name": f"{SET_NAME}-1"}
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
    return json.dumps(body).encode()


def vmi(name: str) -> dict[str, Any]:
    """A VMI as the controller creates it for the replica set. Only the hash and the owner's UID are made up."""
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "name": SET_NAME,
        "uid": "00000000-0000-4000-8000-000000000000",
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "generateName": SET_NAME,
            "labels": {**LABELS, "vmherd.dev/template-hash": "0123456789"},
            "ownerReferences": [owner],
        },
        "spec": SPEC,
    }


def vmi_body(name: str) -> bytes:
    """Return the same VMI as JSON, without an owner.

    The garbage collector would delete a VMI whose owner does not exist.
    """
    body = vmi(name)
    del body["metadata"]["ownerReferences"]
    return json.dumps(body).encode()


def running_vmi(name: str) -> bytes:
    """A running VMI of about 4 KB, with status, conditions and managedFields."""
    seen = vmi(name)
    seen["metadata"] |= {
        "namespace": "default",
        "uid": f"11111111-0000-4000-8000-{abs(hash(name)) % 10**12:012d}",
        "resourceVersion": "123456",
        "generation": 9,
        "creationTimestamp": "2026-11-01T12:00:00Z",
        "managedFields": [
            _managed("vmherd", {"f:metadata": {"f:generateName": {}, "f:labels": {".": {}}}, "f:spec": _fields(SPEC)}),
            _managed("virt-controller", {"f:status": _fields(_STATUS)}),
        ],
    }
    seen["status"] = _STATUS
    return json.dumps(seen, separators=(",", ":")).encode()


def _managed(manager: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "kubevirt.io/v1",
        "time": "2026-11-01T12:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {".": {}} | {f"f:{key}": _fields(item) for key, item in value.items()}
    return {}


def _condition(type_: str, status: str, **more: str) -> dict[str, Any]:
    return {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": "2026-11-01T12:00:05Z"} | more


_STATUS: dict[str, Any] = {
    "activePods": {"5b0a1e3e-0c57-4f0c-9b3f-0f2f4f8f5a10": "worker-1"},
    "conditions": [
        _condition("Ready", "True"),
        _condition("LiveMigratable", "True"),
        _condition("StorageLiveMigratable", "True"),
        _condition("AgentConnected", "False", reason="AgentNotConnected", message="guest agent is not connected"),
    ],
    "guestOSInfo": {"name": "CirrOS", "version": "0.6.2", "kernelRelease": "5.15.0-71-generic"},
    "interfaces": [
        {
            "infoSource": "domain, guest-agent",
            "interfaceName": "eth0",
            "ipAddress": "10.244.3.171",
            "ipAddresses": ["10.244.3.171", "fd10:244::3ab"],
            "mac": "52:54:00:6a:2f:91",
            "name": "default",
            "queueCount": 1,
        }
    ],
    "launcherContainerImageVersion": "virt-launcher:v1.8.0-7f9c3ad1@sha256:2b5c9a1e",
    "machine": {"type": "pc-q35-rhel9.6.0"},
    "memory": {"guestAtBoot": "265Mi", "guestCurrent": "265Mi", "guestRequested": "265Mi"},
    "nodeName": "worker-1",
    "phase": "Running",
    "phaseTransitionTimestamps": [
        {"phase": phase, "phaseTransitionTimestamp": "2026-11-01T12:00:01Z"}
        for phase in ("Pending", "Scheduling", "Scheduled", "Running")
    ],
    "qosClass": "Burstable",
    "runtimeUser": 107,
    "selinuxContext": "none",
    "virtualMachineRevisionName": "revision-start-vm-0f2f4f8f5a10-9",
    "volumeStatus": [
        {"name": "cloudinitdisk", "size": 1048576, "target": "vdb"},
        {"name": "containerdisk", "target": "vda"},
    ],
}
