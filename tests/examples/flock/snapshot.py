"""The complete input of one reconciliation of a flock.

A flock is an example of a third kind, besides sets and pools.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from controller.apimachinery.indexes import NAMESPACE, OWNER_UID, by_namespace, by_owner_uid
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import VirtualMachineInstance
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import StoreView
from tests.examples.flock.types import Flock

VMI_INDEXES: Final[Mapping[str, Callable[[VirtualMachineInstance], Iterable[str]]]] = {
    OWNER_UID: by_owner_uid,
    NAMESPACE: by_namespace,
}


class Snapshot(Struct, frozen=True, kw_only=True):
    owner: Flock
    members: tuple[VirtualMachineInstance, ...]
    settled: bool
    flocks: Resource[Flock]
    revisions: tuple[ControllerRevision, ...] = ()
    marked: Mapping[str, int] = {}


def take_snapshot(
    flocks: StoreView[Flock],
    vmis: StoreView[VirtualMachineInstance],
    key: ObjectKey,
    *,
    settled: bool,
    resource: Resource[Flock],
) -> Snapshot | None:
    """The flock of this key as the caches show it. If the flock does not exist, the result is None."""
    owner = flocks.get(key)
    if owner is None:
        return None
    owned = vmis.by_index(OWNER_UID, owner.metadata.uid)
    members = tuple(vmi for vmi in owned if vmi.metadata.namespace == key.namespace)
    return Snapshot(owner=owner, members=members, settled=settled, flocks=resource)
