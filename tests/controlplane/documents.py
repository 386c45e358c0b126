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
FIXED_SIZE = "fixed-size"
"""The StorageClass of the sandbox whose disks cannot grow."""


def set_document(
    replicas: int = 3,
    *,
    name: str = "herd",
    group: str = "kubevirt.io",
    template_metadata: Document | None = None,
    metadata: Document | None = None,
    **more: Any,
) -> Document:
    """A replica set. `more` are other fields of its spec."""
    template = {"metadata": {"labels": SET_LABELS, **(template_metadata or {})}, "spec": VMI_SPEC}
    own = {"replicas": replicas, "selector": {"matchLabels": SET_LABELS}, "template": template, **more}
    return document(f"{group}/v1", "VirtualMachineInstanceReplicaSet", name, own, **(metadata or {}))


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
    own = {"replicas": replicas, "selector": {"matchLabels": POOL_LABELS}, **more}
    own["virtualMachineTemplate"] = template or vm_template()
    return document(f"{group}/{version}", "VirtualMachinePool", name, own, **(metadata or {}))


def vm_template(
    *,
    vmi_labels: dict[str, str] | None = None,
    vmi_annotations: dict[str, str] | None = None,
    disks: tuple[str, ...] = (),
    claim: Document | None = None,
    volumes: tuple[Document, ...] = (),
    memory: str = "64M",
    vmi_spec: Document | None = None,
    **spec: Any,
) -> Document:
    """A `virtualMachineTemplate`. For each name in `disks`, it has a dataVolumeTemplate and a volume with this name.
    `claim` are keywords of `data_volume_template`.
    """
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
        spec["dataVolumeTemplates"] = [data_volume_template(name, **(claim or {})) for name in disks]
    return {"metadata": {"labels": POOL_LABELS}, "spec": {**spec, "template": template}}


def with_disk(**claim: Any) -> Document:
    """A template whose VMs start quickly and have one disk, `root`."""
    return vm_template(vmi_annotations={READY_AFTER: "100ms"}, disks=("root",), claim=claim)


def data_volume_template(name: str, *, size: str = "1Gi", **claim_spec: Any) -> Document:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **claim_spec}
    return {"metadata": {"name": name}, "spec": {"pvc": claim, "source": {"blank": {}}}}


def vm_document(name: str, *, template: Document | None = None, **metadata: Any) -> Document:
    spec = (template or vm_template())["spec"]
    return document("kubevirt.io/v1", "VirtualMachine", name, spec, **{"labels": POOL_LABELS, **metadata})


def vmi_document(name: str, **metadata: Any) -> Document:
    marks = {"labels": SET_LABELS, **metadata}
    return document("kubevirt.io/v1", "VirtualMachineInstance", name, VMI_SPEC, **marks)


def data_volume_document(name: str, **metadata: Any) -> Document:
    return document("cdi.kubevirt.io/v1beta1", "DataVolume", name, data_volume_template(name)["spec"], **metadata)


def claim_document(name: str, **metadata: Any) -> Document:
    spec = data_volume_template(name)["spec"]["pvc"]
    return document("v1", "PersistentVolumeClaim", name, spec, **metadata)


def document(version: str, kind: str, name: str, spec: Document, **metadata: Any) -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def open_definition(kind: str, name: str, *versions: str, short_names: Sequence[str] = ()) -> Document:
    """The definition of a kind whose objects may have any fields. The first version is stored."""
    plural, _, group = name.partition(".")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = [{"name": each, "served": True, "storage": each == versions[0], "schema": schema} for each in versions]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "shortNames": list(short_names)}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": served}
    return document("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec)


def reference_to(item: Document, *, controller: bool = True, block: bool = False) -> Document:
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
