"""Expectations with their stores, and builders of outcomes."""

from msgspec.structs import replace

from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.runtime.actions import AnyResource, Create, Delete, Outcome, Patch, RemoveOwnerReference, ThreeWayMerge
from controller.runtime.settle.expectations import Expectations
from informers.errors import Conflict, TransportError
from informers.meta import ObjectKey, OwnerReference
from informers.objects import PatchType
from informers.resource import Resource
from informers.store import Store
from tests.builders import seconds_ago, vmi

OWNER = ObjectKey("a", "web")
UID = "uid-1"
LOST = TransportError("connection reset", sent=True)
NO = Conflict("no", code=409)


def kind(plural: str) -> AnyResource:
    return Resource(VirtualMachineInstance, group="test", version="v1", plural=plural, kind="Test")


OPAQUE = kind("opaques")
"""A kind whose resourceVersions are not numbers."""


def created(name: str = "vm", *, resource: AnyResource = VMIS, namespace: str = "a") -> Create:
    return Create(resource=resource, key=ObjectKey(namespace, name), body=b"{}", owner_uid=UID, why="")


def deleted(name: str = "vm", uid: str = "old", *, resource: AnyResource = VMIS, namespace: str = "a") -> Delete:
    return Delete(resource=resource, key=ObjectKey(namespace, name), uid=uid, why="")


def patched(name: str = "vm", *, resource: AnyResource = VMIS, namespace: str = "a") -> Patch:
    return Patch(resource=resource, key=ObjectKey(namespace, name), body=b"{}", type=PatchType.MERGE, why="")


def rebased(name: str = "vm", *, resource: AnyResource = VMIS, namespace: str = "a") -> ThreeWayMerge:
    return ThreeWayMerge(resource=resource, key=ObjectKey(namespace, name), uid="old", old=b"{}", new=b"{}", why="")


def disowned(name: str = "vm", *, resource: AnyResource = VMIS, namespace: str = "a") -> RemoveOwnerReference:
    return RemoveOwnerReference(resource=resource, key=ObjectKey(namespace, name), owner_uid="old", why="")


def an_object(
    name: str, *, version: str, namespace: str = "a", uid: str = "old", owner_uid: str = UID, deleting: bool = False
) -> VirtualMachineInstance:
    owner = OwnerReference(api_version="v1", kind="Set", name="web", uid=owner_uid, controller=True)
    made = vmi(name, namespace=namespace, uid=uid, version=version, owners=(owner,))
    deletion = seconds_ago(1) if deleting else None
    return replace(made, metadata=replace(made.metadata, deletion_timestamp=deletion))


class ExpectationsSetup:
    """Expectations for two stores. The test sets the clock. In the store `opaque`, resourceVersions have no order."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.given_up = 0
        self.store: Store[VirtualMachineInstance] = Store(scopes=("a", "b"))
        self.opaque: Store[VirtualMachineInstance] = Store()
        self.store.advance("10", scope="a")
        self.store.advance("10", scope="b")
        self.opaque.advance("v10")
        self.expectations = Expectations(
            {VMIS: self.store, OPAQUE: self.opaque}, now=lambda: self.now, gave_up=self._give_up
        )

    def _give_up(self) -> None:
        self.given_up += 1

    def record(self, *outcomes: Outcome, owner_uid: str = UID) -> None:
        self.expectations.record(OWNER, owner_uid, outcomes)

    def settled(self, owner_uid: str = UID) -> bool:
        return self.expectations.settled(OWNER, owner_uid)
