"""Pools whose VMs have disks, and what an update changes."""

from typing import Any

from tests.controlplane.documents import READY_AFTER, Document, data_volume_template, vm_template
from tests.controlplane.namespace import PoolNamespace

VMS = "virtualmachines"
FIXED_SIZE = "fixed-size"
"""The StorageClass of the sandbox whose disks cannot grow."""


def with_disk(*, size: str = "1Gi", **claim_spec: Any) -> Document:
    """A template whose VMs start quickly and have one disk, `root`."""
    template = vm_template(vmi_annotations={READY_AFTER: "100ms"}, disks=("root",))
    template["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size=size, **claim_spec)]
    return template


def classes_of(pools: PoolNamespace) -> dict[str, str]:
    """The storage class of each claim."""
    return {name: claim["spec"].get("storageClassName", "") for name, claim in pools.claims().items()}


def memories(items: dict[str, Document]) -> dict[str, str]:
    """The memory of VMs or VMIs, by name."""
    specs = {name: item["spec"].get("template", item)["spec"] for name, item in items.items()}
    return {name: spec["domain"]["resources"]["requests"]["memory"] for name, spec in specs.items()}
