"""A quota for VMIs or VMs. The test writes its status, because no quota controller runs."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.controller_process import ReplicaSetNamespace, eventually

VMIS = "virtualmachineinstances"
QUOTA = f"count/{VMIS}.kubevirt.io"
KINDS = {VMIS: "VirtualMachineInstance", "virtualmachines": "VirtualMachine"}


def allow(sets: ReplicaSetNamespace, number: int, *, of: str = VMIS) -> None:
    """Limit the number of objects in the namespace, and wait until the API server enforces the limit."""
    counted = f"count/{of}.kubevirt.io"
    hard = {counted: str(number)}
    sets.kubectl.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    )
    there = count(sets, of)
    status = json.dumps({"status": {"hard": hard, "used": {counted: str(there)}}})
    sets.kubectl("patch", "resourcequota", "few", "--subresource=status", "--type=merge", "-p", status)
    if there >= number:
        eventually(lambda: not has_room(sets, of), what="the quota is in force")


def count(sets: ReplicaSetNamespace, of: str) -> int:
    return len(sets.kubectl("get", of, "--output=name").stdout.split())


def has_room(sets: ReplicaSetNamespace, of: str) -> bool:
    done = sets.kubectl("create", "--dry-run=server", "-f", "-", stdin=probe(of), check=False)
    return done.returncode == 0


def probe(of: str) -> dict[str, Any]:
    metadata = {"name": "probe"}
    return {"apiVersion": "kubevirt.io/v1", "kind": KINDS[of], "metadata": metadata, "spec": {"domain": {}}}
