"""Disks with owners, VMs with templates, and another client that writes between two requests of the executor."""

from collections.abc import Callable
from typing import Any

import msgspec

from controller.kubevirt.resources import DATA_VOLUMES, VMIS
from controller.runtime.actions import RemoveOwnerReference, ThreeWayMerge
from tests.controller.runtime.executor_setup import ExecutorSetup, document, key
from tests.fakes.requests import Request

VM_UID = "uid-of-the-vm"
FINALIZER = "pool.kubevirt.io/finalizer"


def reference(uid: str, **fields: object) -> dict[str, object]:
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": f"name-of-{uid}", "uid": uid, **fields}


OWN = reference(VM_UID, controller=True, blockOwnerDeletion=True)
OTHERS = [
    reference("first", controller=False, blockOwnerDeletion=False),
    reference("second"),
    reference("third", blockOwnerDeletion=True),
]


def put_disk(setup: ExecutorSetup, *owners: dict[str, object], name: str = "disk", resource: Any = DATA_VOLUMES) -> str:
    """Create a DataVolume or a PersistentVolumeClaim with these owners. Returns its UID."""
    made = setup.server.put(resource, {"metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
    return made["metadata"]["uid"]


def owners_of(setup: ExecutorSetup, name: str = "disk", resource: Any = DATA_VOLUMES) -> list[dict[str, object]]:
    disk = setup.server.find(resource, key(name))
    assert disk is not None
    return [msgspec.to_builtins(owner) for owner in disk.metadata.owner_references or ()]


def disown(name: str = "disk", owner_uid: str = VM_UID, resource: Any = DATA_VOLUMES) -> RemoveOwnerReference:
    return RemoveOwnerReference(resource=resource, key=key(name), owner_uid=owner_uid, why="its state is kept")


def three_way_merge(uid: str, name: str = "vm") -> ThreeWayMerge:
    """A merge from a template with the value 1 to a template with the value 2."""
    old, new = (msgspec.json.encode({"metadata": {}, "spec": {"template": says}}) for says in (1, 2))
    return ThreeWayMerge(resource=VMIS, key=key(name), uid=uid, old=old, new=new, why="newer")


def put_vm(setup: ExecutorSetup, name: str = "vm", *, says: object = 1, **metadata: object) -> str:
    made = setup.server.put(VMIS, {**document(name, **metadata), "spec": {"template": says, "own": "x"}})
    setup.cache.catch_up()
    return made["metadata"]["uid"]


def spec_of(setup: ExecutorSetup, name: str = "vm") -> dict[str, object]:
    return setup.server.document(VMIS, key(name))["spec"]


def when(verb: str, act: Callable[[], object], *, times: int = 1) -> Callable[[Request], None]:
    """Make another client act when a request with this verb arrives. This happens for the next `times` requests."""
    left = times

    def fault_for(request: Request) -> None:
        nonlocal left
        if request.verb == verb and left:
            left -= 1
            act()

    return fault_for


def meddle(setup: ExecutorSetup, resource: Any, name: str) -> Callable[[], object]:
    """Let another client change a label of the object, each time to a new value."""
    return lambda: setup.server.change(resource, key(name), {"metadata": {"labels": {"n": str(setup.server.version)}}})
