"""A quota for VMIs or VMs."""

from __future__ import annotations

from typing import Any

from tests.integration.controller_process import ReplicaSetNamespace, eventually

VMIS = "virtualmachineinstances"
QUOTA = f"count/{VMIS}.kubevirt.io"
KINDS = {VMIS: "VirtualMachineInstance", "virtualmachines": "VirtualMachine"}


def allow(sets: ReplicaSetNamespace, number: int, *, of: str = VMIS) -> None:
    """Limit the number of objects in the namespace, and wait until the API server enforces the limit."""
    counted = f"count/{of}.kubevirt.io"
    quotas = f"/api/v1/namespaces/{sets.namespace}/resourcequotas"
    objects = f"/apis/kubevirt.io/v1/namespaces/{sets.namespace}/{of}"
    there = len(sets.ask("GET", objects)["items"])
    # A full quota refuses the probe. So a quota with room is full first.
    for limit in dict.fromkeys((min(there, number), number)):
        hard = {counted: str(limit)}
        sets.apply(quotas, "few", {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": hard}})
        eventually(
            lambda hard=hard: sets.ask("GET", f"{quotas}/few").get("status", {}).get("hard") == hard,
            what="the quota controller sets the limit",
        )
        if there >= limit:
            eventually(
                lambda: "exceeded quota" in sets.refusal("POST", objects, probe(of)), what="the quota is in force"
            )


def probe(of: str) -> dict[str, Any]:
    spec = {"template": {"spec": {"domain": {}}}, "runStrategy": "Halted"} if of != VMIS else {"domain": {}}
    return {"apiVersion": "kubevirt.io/v1", "kind": KINDS[of], "metadata": {"name": "probe"}, "spec": spec}
