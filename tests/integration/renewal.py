"""Reads the effects of an update or a healing on a pool's VMs, and breaks VMs for the tests of healing."""

from __future__ import annotations

from typing import Any

from sandbox.audit import AuditRecord
from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import (
    BEHAVIOR,
    READY_AFTER,
    REVISION,
    PoolNamespace,
    data_volume_template,
    vm_template,
)

VMS = "virtualmachines"
VMIS = "virtualmachineinstances"
OK = 200


def done(pools: PoolNamespace, verb: str, resource: str, *, since: int, pool: str = "pool") -> list[AuditRecord]:
    """The successful requests of the controller for a pool's objects of this kind, in order."""
    records = [
        record
        for record in pools.requests(verb, since=since)
        if record.resource == resource and record.code == OK and record.name.rpartition("-")[0] == pool
    ]
    return sorted(records, key=lambda record: record.request_received_timestamp)


def restarts(pools: PoolNamespace, *, since: int, pool: str = "pool") -> list[str]:
    """The VMIs that the controller deleted for a restart, in order."""
    return [record.name for record in done(pools, "delete", VMIS, since=since, pool=pool)]


def replacements(pools: PoolNamespace, *, since: int, pool: str = "pool") -> list[str]:
    return [record.name for record in done(pools, "delete", VMS, since=since, pool=pool)]


def with_disk(*, size: str = "1Gi", behavior: str = "normal", **claim_spec: Any) -> dict[str, Any]:
    """A template whose VMs start quickly and have one disk, `root`."""
    template = vm_template(vmi_annotations={BEHAVIOR: behavior, READY_AFTER: "100ms"}, disks=("root",))
    template["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size=size, **claim_spec)]
    return template


def classes_of(pools: PoolNamespace) -> dict[str, str]:
    """The storage class of each claim."""
    return {name: claim["spec"].get("storageClassName", "") for name, claim in pools.claims().items()}


def messages_of(pools: PoolNamespace, reason: str) -> list[str]:
    """The messages of the Events with this reason."""
    return [event["message"] for event in pools.events() if event["reason"] == reason]


def revision_of(item: dict[str, Any]) -> str:
    """The revision in the label of a VM or a VMI, or "" if there is no label."""
    label: str = (item["metadata"].get("labels") or {}).get(REVISION, "")
    return label


def template_revision_of(vm: dict[str, Any]) -> str:
    """The revision that the next VMI of a VM will have."""
    return revision_of(vm["spec"]["template"])


def memory_of(vmi: dict[str, Any]) -> str:
    memory: str = vmi["spec"]["domain"]["resources"]["requests"]["memory"]
    return memory


def vm_memory_of(vm: dict[str, Any]) -> str:
    return memory_of(vm["spec"]["template"])


def printable_status_of(vm: dict[str, Any]) -> str:
    status: str = (vm.get("status") or {}).get("printableStatus", "")
    return status


def change_machine(pools: PoolNamespace, name: str, change: dict[str, Any]) -> None:
    """Change a VM's spec, and wait until the simulator has seen the change. Later VMIs have the new spec."""
    generation = pools.change_vm(name, {"spec": change})["metadata"]["generation"]

    def seen() -> bool:
        return (pools.vm(name).get("status") or {}).get("desiredGeneration", 0) >= generation

    eventually(seen, what=f"the new spec of {name} is seen")


def break_vm(pools: PoolNamespace, name: str, behavior: str, *, ready_after: str = "100ms") -> None:
    """Give a VM a simulated failure, and restart the VM. If the controller recreates the VM, the failure is gone."""
    annotations = {BEHAVIOR: behavior, READY_AFTER: ready_after}
    change_machine(pools, name, {"template": {"metadata": {"annotations": annotations}}})
    pools.delete_vmi(name)


def hold_volume(pools: PoolNamespace, name: str, *, finalizers: tuple[str, ...]) -> None:
    path = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{pools.namespace}/datavolumes/{name}"
    pools.ask("PATCH", path, {"metadata": {"finalizers": list(finalizers)}})


def annotations_of(metadata: dict[str, Any]) -> dict[str, str]:
    """Return the annotations without those that KubeVirt adds to each object."""
    found = metadata.get("annotations") or {}
    return {name: value for name, value in found.items() if not name.startswith("kubevirt.io/")}
