"""VMIs, Pods and nodes for the tests of the simulated launchers."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from sandbox.launchers.pods import Node, Pod
from sandbox.step import Create, Patch, Step
from sandbox.vmis import VMIS, SimulatedVMI

NOW = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
UID = "0b5f6d1e"
LAUNCHER = "virt-launcher-web"
UNPAUSED = "kubevirt.io/virtual-machine-unpaused"
READY = {"type": "Ready", "status": "True"}
SIMULATED = ["Pending", "Scheduling", "Running", "Succeeded"]
OWNER = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "name": "web",
    "uid": UID,
    "controller": True,
}


def vmi(
    phase: str = "Running",
    *,
    node: str = "node01",
    deleted: bool = False,
    domain: dict[str, Any] | None = None,
    **status: Any,
) -> SimulatedVMI:
    meta: dict[str, Any] = {
        "name": "web",
        "namespace": "ns",
        "uid": UID,
        "resourceVersion": "7",
        "labels": {"app": "web"},
    }
    if deleted:
        meta["deletionTimestamp"] = NOW
    conditions = [READY, {"type": "LiveMigratable", "status": "True"}] if phase == "Running" else []
    interfaces = [{"name": "default", "ipAddress": "10.0.0.7"}]
    known = {"phase": phase, "nodeName": node or None, "conditions": conditions, "interfaces": interfaces}
    document = {"metadata": meta, "spec": {"domain": domain or {}}, "status": {**known, **status}}
    return VMIS.decode(msgspec.json.encode(document))


def pod(
    name: str = LAUNCHER, *, node: str = "node01", phase: str = "Pending", deleted: bool = False, **labels: str
) -> Pod:
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"{name}-uid", "ownerReferences": [OWNER]}
    meta["labels"] = {f"kubevirt.io/{label}": value for label, value in labels.items()}
    if deleted:
        meta["deletionTimestamp"] = NOW
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node or None}, "status": {"phase": phase}}, Pod)


def node(name: str, *, ready: str = "True", cordoned: bool = False) -> Node:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"unschedulable": cordoned}, "status": status}, Node)


def named(*all_nodes: Node) -> dict[str, Node]:
    return {each.metadata.name: each for each in all_nodes}


def body(patch: Patch | None) -> dict[str, Any]:
    assert patch is not None
    return json.loads(patch.body)


def created(step: Step) -> dict[str, Any]:
    [effect] = step.effects
    assert isinstance(effect, Create)
    return json.loads(effect.body)


MOVED = vmi(
    node="node02",
    migrationState={"migrationUid": "m1", "completed": True, "endTimestamp": NOW.isoformat(), "targetPod": "target"},
)
