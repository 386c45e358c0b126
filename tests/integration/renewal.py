"""Reads the effects of an update or a healing on a pool's VMs."""

from typing import Any

from sandbox.audit import AuditRecord
from tests.controlplane.documents import BEHAVIOR, READY_AFTER, Document, data_volume_template, vm_template
from tests.controlplane.namespace import PoolNamespace

VMS = "virtualmachines"
VMIS = "virtualmachineinstances"
FIXED_SIZE = "fixed-size"
"""The StorageClass of the sandbox whose disks cannot grow."""


def done(pools: PoolNamespace, verb: str, resource: str, *, since: int, pool: str = "pool") -> list[AuditRecord]:
    """The successful requests of the controller for a pool's objects of this kind, in order."""
    records = pools.requests(verb, since=since, resource=resource, code=200)
    ours = [record for record in records if record.name.rpartition("-")[0] == pool]
    return sorted(ours, key=lambda record: record.request_received_timestamp)


def restarts(pools: PoolNamespace, *, since: int, pool: str = "pool") -> list[str]:
    """The VMIs that the controller deleted for a restart, in order."""
    return [record.name for record in done(pools, "delete", VMIS, since=since, pool=pool)]


def with_disk(*, size: str = "1Gi", behavior: str = "normal", **claim_spec: Any) -> Document:
    """A template whose VMs start quickly and have one disk, `root`."""
    template = vm_template(vmi_annotations={BEHAVIOR: behavior, READY_AFTER: "100ms"}, disks=("root",))
    template["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size=size, **claim_spec)]
    return template


def classes_of(pools: PoolNamespace) -> dict[str, str]:
    """The storage class of each claim."""
    return {name: claim["spec"].get("storageClassName", "") for name, claim in pools.claims().items()}


def memories(items: dict[str, Document]) -> dict[str, str]:
    """The memory of VMs or VMIs, by name."""
    specs = {name: item["spec"].get("template", item)["spec"] for name, item in items.items()}
    return {name: spec["domain"]["resources"]["requests"]["memory"] for name, spec in specs.items()}
