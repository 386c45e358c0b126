"""What an update or a healing did to a pool's VMs, and how to break a VM so that there is something to heal."""

from __future__ import annotations

import json
from typing import Any

from sandbox.audit import AuditRecord
from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import BEHAVIOR, READY_AFTER, REVISION, PoolNamespace

VMS = "virtualmachines"
VMIS = "virtualmachineinstances"
OK = 200


def done(pools: PoolNamespace, verb: str, resource: str, *, since: int, pool: str = "pool") -> list[AuditRecord]:
    """What the controller did to a pool's objects of this kind, successfully, in the order in which it asked for it."""
    records = [
        record
        for record in pools.requests(verb, since=since)
        if record.resource == resource and record.code == OK and record.name.rpartition("-")[0] == pool
    ]
    return sorted(records, key=lambda record: record.request_received_timestamp)


def restarts(pools: PoolNamespace, *, since: int, pool: str = "pool") -> list[str]:
    """The VMIs that were deleted so that they start anew, in this order."""
    return [record.name for record in done(pools, "delete", VMIS, since=since, pool=pool)]


def replacements(pools: PoolNamespace, *, since: int, pool: str = "pool") -> list[str]:
    """The VMs that were deleted, in this order."""
    return [record.name for record in done(pools, "delete", VMS, since=since, pool=pool)]


def revision_of(item: dict[str, Any]) -> str:
    """The revision that a VM or a VMI carries; "" for none."""
    label: str = (item["metadata"].get("labels") or {}).get(REVISION, "")
    return label


def template_revision_of(vm: dict[str, Any]) -> str:
    """The revision that the next VMI of a VM will carry."""
    return revision_of(vm["spec"]["template"])


def memory_of(vmi: dict[str, Any]) -> str:
    memory: str = vmi["spec"]["domain"]["resources"]["requests"]["memory"]
    return memory


def vm_memory_of(vm: dict[str, Any]) -> str:
    return memory_of(vm["spec"]["template"])


def printable_status_of(vm: dict[str, Any]) -> str:
    status: str = (vm.get("status") or {}).get("printableStatus", "")
    return status


def failures_of(vm: dict[str, Any]) -> int:
    """How often in a row a VM failed to start."""
    failures: int = ((vm.get("status") or {}).get("startFailure") or {}).get("consecutiveFailCount", 0)
    return failures


def change_machine(pools: PoolNamespace, name: str, change: dict[str, Any]) -> None:
    """Change a VM's spec, and wait until the simulator has seen it: from then on it starts no other."""
    generation = pools.change_vm(name, {"spec": change})["metadata"]["generation"]

    def seen() -> bool:
        return (pools.vm(name).get("status") or {}).get("desiredGeneration", 0) >= generation

    eventually(seen, what=f"the new spec of {name} is seen")


def break_vm(pools: PoolNamespace, name: str, behavior: str, *, ready_after: str = "100ms") -> None:
    """Restart a VM so that it misbehaves. Made anew from its template, it is well again."""
    annotations = {BEHAVIOR: behavior, READY_AFTER: ready_after}
    change_machine(pools, name, {"template": {"metadata": {"annotations": annotations}}})
    pools.delete_vmi(name)


def hold_volume(pools: PoolNamespace, name: str, *, finalizers: tuple[str, ...]) -> None:
    """Put these finalizers on a DataVolume, and no others."""
    patch = {"metadata": {"finalizers": list(finalizers)}}
    pools.kubectl("patch", "datavolume", name, "--type=merge", "--patch", json.dumps(patch))
