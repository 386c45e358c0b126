"""Builds the documents of objects for the real API server. The name of a function says the kind."""

from collections.abc import Sequence
from typing import Any, TypeAlias

Document: TypeAlias = dict[str, Any]

SET_LABELS = {"app": "herd"}
POOL_LABELS = {"app": "pool"}
VMI_SPEC: Document = {"domain": {"resources": {"requests": {"memory": "64M"}}}}
BEHAVIOR = "sim.vmherd.dev/behavior"
READY_AFTER = "sim.vmherd.dev/ready-after"
FINALIZER = "pool.kubevirt.io/finalizer"
REVISION = "kubevirt.io/vm-pool-revision-name"


def set_document(
    replicas: int = 3,
    *,
    name: str = "herd",
    group: str = "kubevirt.io",
    spec: Document | None = None,
    template_metadata: Document | None = None,
    metadata: Document | None = None,
    **more: Any,
) -> Document:
    """A replica set. `spec` is the spec of its VMIs, and `more` are fields of its own spec."""
    return {
        "apiVersion": f"{group}/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": SET_LABELS},
            "template": {"metadata": {"labels": SET_LABELS, **(template_metadata or {})}, "spec": spec or VMI_SPEC},
            **more,
        },
    }


def pool_document(
    replicas: int = 3,
    *,
    name: str = "pool",
    group: str = "pool.kubevirt.io",
    version: str = "v1beta1",
    template: Document | None = None,
    metadata: Document | None = None,
    **more: Any,
) -> Document:
    """A pool. `template` is its `virtualMachineTemplate`, and `more` are other fields of its spec."""
    return {
        "apiVersion": f"{group}/{version}",
        "kind": "VirtualMachinePool",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": POOL_LABELS},
            "virtualMachineTemplate": template or vm_template(),
            **more,
        },
    }


def vm_template(
    *,
    labels: dict[str, str] | None = None,
    vmi_labels: dict[str, str] | None = None,
    vmi_annotations: dict[str, str] | None = None,
    disks: tuple[str, ...] = (),
    volumes: tuple[Document, ...] = (),
    memory: str = "64M",
    vmi_spec: Document | None = None,
    **spec: Any,
) -> Document:
    """A `virtualMachineTemplate`. For each name in `disks`, it has a dataVolumeTemplate and a volume with this name."""
    own = [{"name": name, "dataVolume": {"name": name}} for name in disks]
    devices = {"disks": [{"name": volume["name"], "disk": {"bus": "virtio"}} for volume in (*own, *volumes)]}
    template = {
        "metadata": {"labels": {**POOL_LABELS, **(vmi_labels or {})}, "annotations": {**(vmi_annotations or {})}},
        "spec": {
            "domain": {"resources": {"requests": {"memory": memory}}, "devices": devices},
            "volumes": [*own, *volumes],
            **(vmi_spec or {}),
        },
    }
    if "running" not in spec:
        spec.setdefault("runStrategy", "Always")
    if disks:
        spec["dataVolumeTemplates"] = [data_volume_template(name) for name in disks]
    return {"metadata": {"labels": {**POOL_LABELS, **(labels or {})}}, "spec": {**spec, "template": template}}


def memory_of_vmis(memory: str) -> Document:
    """The part of a VMI spec with this memory."""
    return {"domain": {"resources": {"requests": {"memory": memory}}}}


def data_volume_template(name: str, *, size: str = "1Gi", **claim_spec: Any) -> Document:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **claim_spec}
    return {"metadata": {"name": name}, "spec": {"pvc": claim, "source": {"blank": {}}}}


def vm_document(name: str, *, template: Document | None = None, **metadata: Any) -> Document:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": POOL_LABELS, **metadata},
        "spec": (template or vm_template())["spec"],
    }


def vmi_document(name: str, *, spec: Document | None = None, **metadata: Any) -> Document:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "labels": SET_LABELS, **metadata},
        "spec": spec or VMI_SPEC,
    }


def data_volume_document(name: str, **metadata: Any) -> Document:
    spec = data_volume_template(name)["spec"]
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def claim_document(name: str, **metadata: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, **metadata},
        "spec": data_volume_template(name)["spec"]["pvc"],
    }


def open_definition(kind: str, name: str, *versions: str, short_names: Sequence[str] = ()) -> Document:
    """The definition of a kind whose objects may have any fields. The first version is stored."""
    plural, _, group = name.partition(".")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = [{"name": each, "served": True, "storage": each == versions[0], "schema": schema} for each in versions]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "shortNames": list(short_names)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": served},
    }


def reference_to(item: Document, *, controller: bool = True, block: bool = False) -> Document:
    """An ownerReference to a stored object."""
    reference = {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": item["metadata"]["name"]}
    reference["uid"] = item["metadata"]["uid"]
    return {**reference, "controller": controller, **({"blockOwnerDeletion": True} if block else {})}


def owner_uid(item: Document) -> str:
    """The UID of an object's controller, or "" if there is none."""
    return next((r["uid"] for r in item["metadata"].get("ownerReferences") or () if r.get("controller")), "")


def owned_by(items: dict[str, Document], owner: Document) -> list[str]:
    """The names of the objects whose controller is `owner`."""
    return sorted(name for name, item in items.items() if owner_uid(item) == owner["metadata"]["uid"])


def uids(items: dict[str, Document]) -> dict[str, str]:
    return {name: item["metadata"]["uid"] for name, item in items.items()}


def finalizers_of(item: Document) -> list[str]:
    return item["metadata"].get("finalizers") or []


def is_leaving(item: Document) -> bool:
    return "deletionTimestamp" in item["metadata"]


def is_ready(item: Document) -> bool:
    """Whether the condition Ready of a VM, a VMI or a Pod is true."""
    return (condition_of(item, "Ready") or {}).get("status") == "True"


def condition_of(item: Document, type_: str) -> Document | None:
    return next((c for c in (item.get("status") or {}).get("conditions") or () if c["type"] == type_), None)


def is_observed(item: Document) -> bool:
    """Whether the status of a set or pool is for its newest spec."""
    return (item.get("status") or {}).get("observedGeneration") == item["metadata"]["generation"]
