"""Everything that one pass over a replica set may know, taken from the caches in one go.

A snapshot is a value: decisions made on it depend on nothing else, so the same snapshot gives the same plan. Taking
one looks only at this set's members and its namespace's orphans, through indexes; it never scans a namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt.types import ReplicaSet, VirtualMachineInstance
from informers.meta import ObjectKey, controller_of
from informers.resource import Resource
from informers.store import StoreView


def by_owner_uid(vmi: VirtualMachineInstance) -> Iterable[str]:
    """Index: the UID of the VMI's controller, whatever it is."""
    owner = controller_of(vmi.metadata)
    return () if owner is None else (owner.uid,)


def by_orphan_namespace(vmi: VirtualMachineInstance) -> Iterable[str]:
    """Index: the namespace of a VMI that nobody controls."""
    return (vmi.metadata.namespace,) if controller_of(vmi.metadata) is None else ()


def by_namespace(replicaset: ReplicaSet) -> Iterable[str]:
    """Index: the namespace of a set."""
    return (replicaset.metadata.namespace,)


OWNER_UID: Final = "owner-uid"
ORPHAN_NAMESPACE: Final = "orphan-namespace"
NAMESPACE: Final = "namespace"

VMI_INDEXES: Final[Mapping[str, Callable[[VirtualMachineInstance], Iterable[str]]]] = {
    OWNER_UID: by_owner_uid,
    ORPHAN_NAMESPACE: by_orphan_namespace,
}
REPLICASET_INDEXES: Final[Mapping[str, Callable[[ReplicaSet], Iterable[str]]]] = {NAMESPACE: by_namespace}


class NamesInUse(Struct, frozen=True):
    """The names that a namespace's VMIs have, whoever owns them: `name in names`."""

    vmis: StoreView[VirtualMachineInstance]
    namespace: str

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.vmis.get(ObjectKey(self.namespace, name)) is not None


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


def recounted(planned: Snapshot, latest: Snapshot) -> Snapshot | None:
    """What the status of a pass is told from: the latest members and status, under the spec that was planned from.

    A spec that changed while the plan was carried out has not been observed yet, and must not be reported as if (R11).
    None when the set was replaced by another of the same name: the pass says nothing about that one.
    """
    before, after = planned.owner, latest.owner
    if before.metadata.uid != after.metadata.uid:
        return None
    if before.metadata.generation == after.metadata.generation:
        return latest
    metadata = replace(after.metadata, generation=before.metadata.generation)
    owner = replace(after, metadata=metadata, spec=before.spec)
    return replace(latest, owner=owner)
