"""Everything that one pass over a replica set may know, taken from the caches in one go.

A snapshot is a value: decisions made on it depend on nothing else, so the same snapshot gives the same plan. Taking
one looks only at this set's members and its namespace's orphans, through indexes; it never scans a namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from controller.apimachinery.indexes import NAMESPACE, OWNER_UID, NamesInUse, by_namespace, by_owner_uid
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from informers.meta import ObjectKey, controller_of
from informers.resource import Resource
from informers.store import StoreView


def by_orphan_namespace(vmi: VirtualMachineInstance) -> Iterable[str]:
    """Index: the namespace of a VMI that nobody controls."""
    return (vmi.metadata.namespace,) if controller_of(vmi.metadata) is None else ()


ORPHAN_NAMESPACE: Final = "orphan-namespace"

VMI_INDEXES: Final[Mapping[str, Callable[[VirtualMachineInstance], Iterable[str]]]] = {
    OWNER_UID: by_owner_uid,
    ORPHAN_NAMESPACE: by_orphan_namespace,
}
REPLICASET_INDEXES: Final[Mapping[str, Callable[[ReplicaSet], Iterable[str]]]] = {NAMESPACE: by_namespace}


class Snapshot(Struct, frozen=True, kw_only=True):
    """One replica set and its surroundings.

    `members` have the set's UID in their controller reference and live in its namespace; `orphans` live there too and
    have no controller, matching or not. `taken` holds the names in use. `settled` tells whether the caches show all
    that was written for this set before (R9). `burst` bounds the creates and the deletes of a pass (R4, R6, R7).
    """

    owner: ReplicaSet
    members: tuple[VirtualMachineInstance, ...]
    orphans: tuple[VirtualMachineInstance, ...]
    taken: Container[str]
    now: datetime
    settled: bool
    burst: int
    replicasets: Resource[ReplicaSet]
    vmis: Resource[VirtualMachineInstance]

    @property
    def key(self) -> ObjectKey:
        return self.owner.metadata.key


def take_snapshot(
    replicasets: StoreView[ReplicaSet],
    vmis: StoreView[VirtualMachineInstance],
    key: ObjectKey,
    *,
    now: datetime,
    settled: bool,
    burst: int,
    replicaset_resource: Resource[ReplicaSet],
    vmi_resource: Resource[VirtualMachineInstance],
) -> Snapshot | None:
    """The set of this key as the caches show it; None when there is no such set."""
    owner = replicasets.get(key)
    if owner is None:
        return None
    # A reference across namespaces is void in Kubernetes: whoever writes one must not reach into somebody's set.
    members = tuple(
        vmi
        for vmi in vmis.by_index(OWNER_UID, owner.metadata.uid)
        if vmi.metadata.namespace == owner.metadata.namespace
    )
    return Snapshot(
        owner=owner,
        members=members,
        orphans=tuple(vmis.by_index(ORPHAN_NAMESPACE, owner.metadata.namespace)),
        taken=NamesInUse(vmis, owner.metadata.namespace),
        now=now,
        settled=settled,
        burst=burst,
        replicasets=replicaset_resource,
        vmis=vmi_resource,
    )
