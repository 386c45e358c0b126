"""Rows of the API server's tables, with the cells that the demo reads."""

from typing import Any

from sandbox.demo.tables import REVISION, Row


def vmi(name: str, revision: str = "pool-1", *, controller: str = "VirtualMachine", **more: Any) -> Row:
    """A VMI of a pool's VM, ready and not being deleted."""
    return _machine(name, revision, {"Phase": "Running", "NodeName": "", "IP": ""}, controller=controller, **more)


def set_vmi(name: str, **more: Any) -> Row:
    return vmi(name, "", controller="VirtualMachineInstanceReplicaSet", **more)


def vm(name: str, revision: str = "pool-1", *, controller: str = "VirtualMachinePool", **more: Any) -> Row:
    """A pool's VM, ready and not being deleted."""
    return _machine(name, revision, {"Status": "Running"}, controller=controller, **more)


def owner(name: str, number: int = 3, **cells: str) -> Row:
    """A pool, or an object of another kind, with `number` members."""
    counts = dict.fromkeys(("Desired", "Current", "Ready", "Updated"), str(number))
    return Row({**counts, "Status": "", "Problem": "", **cells}, {"name": name})


def event(message: str, *, version: int = 1, subject: str = "virtualmachinepool/web", **cells: str) -> Row:
    rest = {"Last Seen": "2m", "Type": "Normal", "Reason": "SuccessfulCreate", "Count": "1", **cells}
    return Row({**rest, "Object": subject, "Message": message}, {"resourceVersion": str(version)})


def _machine(
    name: str, revision: str, cells: dict[str, str], *, controller: str, leaving: bool = False, **more: Any
) -> Row:
    meta: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}-of-another",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {REVISION: revision},
        "ownerReferences": [{"kind": controller, "controller": True}] if controller else None,
    }
    if leaving:
        meta["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    return Row({"Ready": "True", **cells, **more}, meta)
