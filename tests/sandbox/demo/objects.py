"""JSON objects of the API server, with the fields that the demo reads."""

from typing import Any

from controller.kinds import POOLS, Kind
from sandbox.demo.status import REVISION


def vmi(name: str, revision: str = "pool-1", **more: Any) -> dict[str, Any]:
    """A VMI of a pool's VM, ready and not being deleted."""
    return _machine(name, revision, controller=("VirtualMachine", "u-vm"), phase="Running", **more)


def set_vmi(name: str, **more: Any) -> dict[str, Any]:
    controller = ("VirtualMachineInstanceReplicaSet", "u-set")
    return _machine(name, "", controller=controller, phase="Running", **more)


def vm(name: str, revision: str = "pool-1", *, status: str = "Running", **more: Any) -> dict[str, Any]:
    """A pool's VM, ready and not being deleted."""
    owner = {"controller": ("VirtualMachinePool", "u-pool"), **more}
    return _machine(name, revision, **owner, printableStatus=status)


def owner(
    name: str, uid: str, *, kind: Kind[Any] = POOLS, generation: int = 1, desired: int = 3, **status: Any
) -> dict[str, Any]:
    """A pool, or an object of another kind."""
    return {
        "kind": kind.kind,
        "metadata": {"name": name, "uid": uid, "generation": generation},
        "spec": {"replicas": desired},
        "status": {"observedGeneration": generation, **status},
    }


def counts(number: int) -> dict[str, int]:
    return {"replicas": number, "readyReplicas": number, "updatedReplicas": number}


def event(message: str, *, at: str = "2026-01-01T00:00:00Z", kind: str = "VirtualMachinePool", **more: Any) -> Any:
    involved = {"kind": kind, "name": "web"}
    subject = {"metadata": {}, "involvedObject": involved, "reason": "SuccessfulCreate", "message": message}
    return {**subject, "lastTimestamp": at, **more}


def _machine(
    name: str,
    revision: str,
    *,
    controller: tuple[str, str] | None,
    ready: bool = True,
    leaving: bool = False,
    version: int = 1,
    **status: str,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}-of-somebody",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": str(version),
        "labels": {REVISION: revision} if revision else None,
    }
    if controller is not None:
        kind, uid = controller
        metadata["ownerReferences"] = [{"kind": kind, "uid": uid, "controller": True}]
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": metadata, "status": {"conditions": conditions, **status}}
