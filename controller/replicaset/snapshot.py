"""The snapshot of a replica set contains all input of one reconciliation, read from the caches at one moment.

A snapshot is an immutable value. A plan depends only on the snapshot, so equal snapshots give equal plans.
`take_snapshot` uses indexes to find the VMIs of the set and the orphans (VMIs that no owner controls) in its namespace.
`take_snapshot` never scans all VMIs of a namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from controller.apimachinery.indexes import NamesInUse
from controller.apimachinery.label_selectors import LabelSelector, Operator
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND, ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.catalogue import Place
from controller.replicas.wrong_annotations import Wrong, all_wrong
from controller.replicaset.history import History
from controller.replicaset.traits import VMIs, group_vmis, traits_of, wrong_on_vmi
from controller.runtime.members.rosters import Rosters
from informers.meta import ObjectKey, ObjectMeta, controller_of
from informers.resource import Resource
from informers.store import StoreView


def by_set_uid(vmi: VirtualMachineInstance) -> Iterable[str]:
    """An index function. Return the UID of the set that controls the VMI.

    Return nothing for the VMI of a VM. A cluster can have very many of these, and an index needs memory.
    """
    owner = controller_of(vmi.metadata)
    return (owner.uid,) if owner is not None and owner.kind == REPLICA_SET_KIND else ()


def by_orphan_namespace(vmi: VirtualMachineInstance) -> Iterable[str]:
    """An index function. Return the namespace of a VMI that no owner controls. Return nothing for other VMIs."""
    return (vmi.metadata.namespace,) if controller_of(vmi.metadata) is None else ()


SET_UID: Final = "set-uid"
ORPHAN_NAMESPACE: Final = "orphan-namespace"

VMI_INDEXES: Final[Mapping[str, Callable[[VirtualMachineInstance], Iterable[str]]]] = {
    SET_UID: by_set_uid,
    ORPHAN_NAMESPACE: by_orphan_namespace,
}


REQUIRED_LABEL: Final = "required-label"


def by_required_label(owner: ReplicaSet) -> Iterable[str]:
    """An index function for sets. With the index, the controller finds the sets that may adopt a VMI.

    The function chooses one label that the selector of the set requires, and returns a key for each allowed value of
    this label. If the selector requires no label, the function returns the namespace.
    """
    selector = owner.spec.selector or LabelSelector()
    namespace = owner.metadata.namespace
    for key, value in (selector.match_labels or {}).items():
        return (label_key(namespace, key, value),)
    for requirement in selector.match_expressions or ():
        if requirement.operator == Operator.IN:
            return {label_key(namespace, requirement.key, value) for value in requirement.values or ()}
    return (namespace,)


def label_key(namespace: str, key: str, value: str) -> str:
    """Return the key for a label in the index `REQUIRED_LABEL`. `by_required_label` explains the index."""
    return f"{namespace}/{key}={value}"


REPLICASET_INDEXES: Final[Mapping[str, Callable[[ReplicaSet], Iterable[str]]]] = {REQUIRED_LABEL: by_required_label}


class Snapshot(Struct, frozen=True, kw_only=True):
    """One replica set, its VMIs and the orphans of its namespace.

    - `members`: the VMIs that the set controls, in groups with equal traits.
    - `orphans`: the VMIs in the same namespace that no owner controls. Their labels need not match the selector.
    - `taken`: the names that VMIs in the namespace of the set already have.
    - `settled`: True if the caches show all earlier writes for this set (R9).
    - `now`: the time of the wall clock when the snapshot was taken.
    - `burst`: the maximum number of create requests in one reconciliation, and also the maximum number of delete
      requests (R4, R6, R7).
    - `max_replicas`: the maximum number of VMIs of one set, or 0 for no limit (R4).
    - `history`: the revisions of the set, or None if sets keep no history (R17).
    """

    owner: ReplicaSet
    members: VMIs
    orphans: tuple[VirtualMachineInstance, ...]
    taken: Container[str]
    now: datetime
    settled: bool
    burst: int
    replicasets: Resource[ReplicaSet]
    vmis: Resource[VirtualMachineInstance]
    max_replicas: int = 0
    history: History | None = None

    @property
    def key(self) -> ObjectKey:
        return self.owner.metadata.key

    @property
    def wrong_annotations(self) -> tuple[Wrong, ...]:
        """The wrong annotations of the set and of its VMIs (P23)."""
        members = (("VMI", group, wrong_on_vmi(group[0])) for group in self.members.groups)
        return all_wrong(self.owner.metadata, Place.SET, members)


def members_of(owner: ObjectMeta, vmis: StoreView[VirtualMachineInstance]) -> tuple[VirtualMachineInstance, ...]:
    """Return the VMIs that the set controls."""
    # Kubernetes ignores an owner reference to an object of another namespace. So a VMI of another namespace must not
    # count as a member, even if the VMI has an owner reference to this set.
    return tuple(vmi for vmi in vmis.by_index(SET_UID, owner.uid) if vmi.metadata.namespace == owner.namespace)


class _Reader(Struct, frozen=True):
    """Reads the VMIs of one set from the cache, for its roster."""

    vmis: StoreView[VirtualMachineInstance]
    owner: ObjectMeta

    def size(self) -> int:
        return len(self.vmis.by_index(SET_UID, self.owner.uid))

    def names(self) -> Iterable[str]:
        return (vmi.metadata.name for vmi in self.load())

    def load(self) -> Iterable[VirtualMachineInstance]:
        return members_of(self.owner, self.vmis)

    def read(self, name: str) -> VirtualMachineInstance | None:
        vmi = self.vmis.get(ObjectKey(self.owner.namespace, name))
        return vmi if vmi is not None and self.owner.uid in by_set_uid(vmi) else None


class VMIRosters:
    """The rosters of large sets. The store tells this object about each change of a VMI."""

    def __init__(self, vmis: StoreView[VirtualMachineInstance]) -> None:
        self._vmis = vmis
        self._rosters: Rosters[VirtualMachineInstance] = Rosters(traits_of)
        vmis.follow(self)

    def prepare(self, owner: ObjectMeta) -> Iterator[object]:
        """Read the members of a very large set in slices (see `Rosters.prepare`)."""
        return self._rosters.prepare(owner, _Reader(self._vmis, owner))

    def members_of(self, owner: ObjectMeta) -> VMIs:
        return self._rosters.read(owner, _Reader(self._vmis, owner))

    def changed(self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        for vmi in (old, new):
            owner = controller_of(vmi.metadata) if vmi is not None else None
            if vmi is not None and owner is not None and owner.kind == REPLICA_SET_KIND:
                self._rosters.change(owner.uid, vmi.metadata.name)

    def replaced(self) -> None:
        self._rosters.forget_all()

    def forget(self, key: ObjectKey) -> None:
        """Remove the roster of a deleted set."""
        self._rosters.forget(key)


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
    max_replicas: int = 0,
    rosters: VMIRosters | None = None,
) -> Snapshot | None:
    """Return the snapshot of the set with this key, or None if the cache does not contain the set.

    Without `rosters`, the snapshot reads all VMIs of the set.
    """
    owner = replicasets.get(key)
    if owner is None:
        return None
    return Snapshot(
        owner=owner,
        members=rosters.members_of(owner.metadata) if rosters else group_vmis(members_of(owner.metadata, vmis)),
        orphans=tuple(vmis.by_index(ORPHAN_NAMESPACE, owner.metadata.namespace)),
        taken=NamesInUse(vmis, owner.metadata.namespace),
        now=now,
        settled=settled,
        burst=burst,
        replicasets=replicaset_resource,
        vmis=vmi_resource,
        max_replicas=max_replicas,
    )
