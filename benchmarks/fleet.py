"""The objects of a large cluster: VMIs of replica sets, VMs of pools with their VMIs, and revisions of KubeVirt.

Each function returns one object as the API server sends it, as JSON. The `number` of an object gives its name, its UID
and its owner. Status and metadata are like those that KubeVirt 1.9 writes.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks import subject
from controller.kinds import REPLICA_SETS
from controller.replicaset.template import Template, parse_template

NAMESPACES = 50
SET_SIZE = 20
POOL_SIZE = 20

_NOT_MIGRATABLE = (
    "cannot migrate VMI which does not use masquerade, bridge with kubevirt.io/allow-pod-bridge-network-live-migration "
    "VM annotation or a migratable plugin to connect to the pod network"
)


def uid(kind: int, number: int) -> str:
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


def vmi_of_set(number: int, *, size: int = SET_SIZE) -> bytes:
    """A running VMI of a replica set with `size` VMIs."""
    group = number // size
    owner = _owner("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet", f"fleet-{group:05d}", uid(1, group))
    labels = {"app": f"fleet-{group:05d}", "vmherd.dev/template-hash": f"{group:010x}"}
    return _vmi(number, group, vmi_name(number, size), owner, labels, uid(2, number))


def vmi_of_vm(number: int, *, size: int = POOL_SIZE) -> bytes:
    """The running VMI of the VM with the same number."""
    group = number // size
    name = vm_name(number, size)
    owner = _owner("kubevirt.io/v1", "VirtualMachine", name, uid(4, number))
    labels = {"app": f"pool-{group:05d}", "kubevirt.io/vm-pool-revision-name": f"pool-{group:05d}-1"}
    return _vmi(number, group, name, owner, labels, uid(5, number))


def vm_of_pool(number: int, *, size: int = POOL_SIZE) -> bytes:
    """A running VM of a pool with `size` VMs."""
    group = number // size
    pool, name = f"pool-{group:05d}", vm_name(number, size)
    owner = _owner("pool.kubevirt.io/v1beta1", "VirtualMachinePool", pool, uid(3, group))
    metadata = _metadata(number, namespace_of(group), name, uid(4, number)) | {
        "annotations": {
            "kubevirt.io/latest-observed-api-version": "v1",
            "kubevirt.io/storage-observed-api-version": "v1",
        },
        "finalizers": ["pool.kubevirt.io/finalizer", "kubevirt.io/virtualMachineControllerFinalize"],
        "labels": {"app": pool, "kubevirt.io/vm-pool-revision-name": f"{pool}-1"},
        "ownerReferences": [owner],
    }
    spec = vm_spec(pool, suffix=f"-{name.rpartition('-')[2]}")
    status = {
        "conditions": [*_conditions(number), _condition("DataVolumesReady", "True", None, reason="AllDVsReady")],
        "created": True,
        "desiredGeneration": 1,
        "observedGeneration": 1,
        "printableStatus": "Running",
        "ready": True,
        "runStrategy": "Always",
        "volumeSnapshotStatuses": [
            {"enabled": False, "name": name, "reason": f"Snapshot is not supported for this volumeSource type [{name}]"}
            for name in ("containerdisk", "cloudinitdisk")
        ],
    }
    managed = [_managed("vmherd", spec), _managed("virt-controller", status)]
    return _encode({"metadata": metadata | {"managedFields": managed}, "spec": spec, "status": status})


def vm_spec(pool: str, *, suffix: str = "", image: str = "v1") -> dict[str, Any]:
    """The spec of a VM. Without `suffix`, it is the spec in the template of the pool."""
    labels = {"app": pool} | ({"kubevirt.io/vm-pool-revision-name": f"{pool}-1"} if suffix else {})
    volumes = [*subject.SPEC["volumes"], {"name": "root", "dataVolume": {"name": f"root{suffix}"}}]
    volumes[0] = {"name": "containerdisk", "containerDisk": {"image": f"kubevirt/cirros:{image}"}}
    inner = subject.SPEC | {"architecture": "amd64", "nodeSelector": {"zone": "east"}, "volumes": volumes}
    request = {"storage": {"resources": {"requests": {"storage": "1Gi"}}}, "source": {"blank": {}}}
    return {
        "runStrategy": "Always",
        "template": {"metadata": {"labels": labels}, "spec": inner},
        "dataVolumeTemplates": [{"metadata": {"name": f"root{suffix}"}, "spec": request}],
    }


def pool(replicas: int, *, image: str = "v1", generation: int = 1, number: int = 0) -> bytes:
    """A pool."""
    name = f"pool-{number:05d}"
    template = {"metadata": {"labels": {"app": name}}, "spec": vm_spec(name, image=image)}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "virtualMachineTemplate": template,
        "maxUnavailable": "10%",
    }
    metadata = _metadata(number, namespace_of(number), name, uid(3, number)) | {
        "generation": generation,
        "finalizers": ["pool.kubevirt.io/finalizer"],
    }
    return _encode({"metadata": metadata, "spec": spec})


def pool_revision(pool_spec: dict[str, Any], *, number: int = 0) -> bytes:
    """The first revision of a pool."""
    name = f"pool-{number:05d}"
    owner = _owner("pool.kubevirt.io/v1beta1", "VirtualMachinePool", name, uid(3, number))
    metadata = _metadata(number, namespace_of(number), f"{name}-1", uid(9, number)) | {"ownerReferences": [owner]}
    return _encode({"metadata": metadata, "data": pool_spec, "revision": 1})


def replica_set(replicas: int, *, number: int = 0) -> bytes:
    """A replica set."""
    name = f"fleet-{number:05d}"
    labels = {"app": name}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": subject.SPEC},
    }
    return _encode({"metadata": _metadata(number, namespace_of(number), name, uid(1, number)), "spec": spec})


def set_revision(number: int) -> bytes:
    """The revision of a replica set's template."""
    name, owner = f"fleet-{number:05d}", json.loads(replica_set(1, number=number))
    reference = _owner("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet", name, uid(1, number))
    metadata = _metadata(number, namespace_of(number), set_revision_name(number), uid(10, number)) | {
        "labels": {"vmherd.dev/template-hash": template_hash(number)},
        "ownerReferences": [reference],
    }
    return _encode({"metadata": metadata, "data": {"template": owner["spec"]["template"]}, "revision": 1})


def set_revision_name(number: int) -> str:
    return f"fleet-{number:05d}-{template_hash(number)}"


def template_hash(number: int) -> str:
    """The hash of a replica set's template, as the controller computes it."""
    template = parse_template(REPLICA_SETS.resource().decode(replica_set(1, number=number)))
    assert isinstance(template, Template)
    return template.hash


def kubevirt_revision(number: int) -> bytes:
    """A ControllerRevision in which KubeVirt stores the instance type of a VM."""
    name, owner_uid = vm_name(number), uid(4, number)
    owner = _owner("kubevirt.io/v1", "VirtualMachine", name, owner_uid)
    metadata = _metadata(number, f"team-{number // POOL_SIZE % NAMESPACES}", "", uid(6, number)) | {
        "name": f"{name}-cx1.medium-v1beta1-{uid(7, 0)}-1",
        "labels": {
            "instancetype.kubevirt.io/object-generation": "1",
            "instancetype.kubevirt.io/object-kind": "VirtualMachineClusterInstancetype",
            "instancetype.kubevirt.io/object-name": "cx1.medium",
            "instancetype.kubevirt.io/object-uid": uid(7, 0),
            "instancetype.kubevirt.io/object-version": "v1beta1",
        },
        "ownerReferences": [owner],
    }
    data = {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "cx1.medium", "uid": uid(7, 0), "resourceVersion": "1042"},
        "spec": {
            "cpu": {"dedicatedCPUPlacement": True, "guest": 1, "isolateEmulatorThread": True, "model": "host-model"},
            "ioThreadsPolicy": "auto",
            "memory": {"guest": "2Gi", "hugepages": {"pageSize": "2Mi"}},
        },
    }
    return _encode({"metadata": metadata, "data": data, "revision": 0})


def _vmi(number: int, group: int, name: str, owner: dict[str, Any], labels: dict[str, str], uid_: str) -> bytes:
    node = node_of(number)
    metadata = _metadata(number, namespace_of(group), name, uid_) | {
        "annotations": {
            "kubevirt.io/latest-observed-api-version": "v1",
            "kubevirt.io/storage-observed-api-version": "v1",
            "kubevirt.io/vm-generation": "1",
        },
        "finalizers": ["kubevirt.io/virtualMachineControllerFinalize", "foregroundDeleteVirtualMachine"],
        "labels": labels | {"kubevirt.io/nodeName": node},
        "ownerReferences": [owner],
    }
    running: dict[str, Any] = json.loads(subject.running_vmi(name))
    status = running["status"] | {
        "activePods": {uid(8, number): node},
        "conditions": _conditions(number),
        "nodeName": node,
        "phaseTransitionTimestamps": [
            {"phase": phase, "phaseTransitionTimestamp": _time(number + after)}
            for after, phase in enumerate(("Pending", "Scheduling", "Scheduled", "Running"))
        ],
    }
    managed = [_managed("virt-controller", running["spec"]), _managed("virt-handler", status)]
    return _encode({"metadata": metadata | {"managedFields": managed}, "spec": running["spec"], "status": status})


def namespace_of(group: int) -> str:
    """Return the namespace of a replica set or pool."""
    return f"team-{group % NAMESPACES}"


def node_of(number: int) -> str:
    """Return the node of a VMI."""
    return f"worker-{number % 400}"


def vmi_name(number: int, size: int = SET_SIZE) -> str:
    """Return the name of a VMI of a replica set."""
    return f"fleet-{number // size:05d}-{number:06d}"


def vm_name(number: int, size: int = POOL_SIZE) -> str:
    """Return the name of a VM of a pool, and of its VMI."""
    return f"pool-{number // size:05d}-{number % size}"


def _metadata(number: int, namespace: str, name: str, uid_: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "uid": uid_,
        "resourceVersion": str(1_000_000 + number),
        "generation": 9,
        "creationTimestamp": _time(number),
    }


def _owner(api_version: str, kind: str, name: str, uid_: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid_,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _conditions(number: int) -> list[dict[str, Any]]:
    return [
        _condition("Ready", "True", _time(number + 5)),
        _condition("LiveMigratable", "False", None, reason="InterfaceNotLiveMigratable", message=_NOT_MIGRATABLE),
        _condition("StorageLiveMigratable", "True", None),
        _condition("AgentConnected", "True", _time(number + 20)),
    ]


def _condition(type_: str, status: str, since: str | None, **more: str) -> dict[str, Any]:
    return {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": since} | more


def _managed(manager: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "kubevirt.io/v1",
        "time": _time(0),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": _fields(content)},
    }


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {".": {}} | {f"f:{key}": _fields(item) for key, item in value.items()}
    return {}


def _time(second: int) -> str:
    return (
        f"2026-11-{second // 86400 % 28 + 1:02d}T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
    )


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
