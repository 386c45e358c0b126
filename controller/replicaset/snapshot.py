"""The snapshot of a replica set contains all input of one reconciliation, read from the caches at one moment.

A snapshot is an immutable value. A plan depends only on the snapshot, so equal snapshots give equal plans.
Indexes find the VMIs of the set and the orphans (VMIs that no owner controls) in its namespace. So no reconciliation
scans all VMIs of a namespace.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from controller.apimachinery.indexes import NAMESPACE, by_namespace
from controller.apimachinery.label_selectors import LabelSelector, Operator
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND, ReplicaSet
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.catalogue import Place
from controller.replicas.disruption_budget import (
    BUDGET_NAMESPACE,
    Budgets,
    by_budgeted_namespace,
    useless_budget,
)
from controller.replicas.settings import asks_for_budget
from controller.replicas.wrong_annotations import Wrong, all_wrong
from controller.replicaset.history import History
from controller.replicaset.intent import Intent, parse_intent
from controller.replicaset.traits import VMIs, wrong_on_vmi
from informers.meta import ObjectKey, controller_of
from informers.resource import Resource


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
    NAMESPACE: by_namespace,
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


REPLICASET_INDEXES: Final[Mapping[str, Callable[[ReplicaSet], Iterable[str]]]] = {
    REQUIRED_LABEL: by_required_label,
    BUDGET_NAMESPACE: by_budgeted_namespace,
}


class Snapshot(Struct, frozen=True, kw_only=True):
    """One replica set, its VMIs and the orphans of its namespace.

    - `members`: the VMIs that the set controls, in groups with equal traits.
    - `orphans`: the VMIs in the same namespace that no owner controls. Their labels need not match the selector.
    - `taken`: the names that VMIs in the namespace of the set have, or had a short time ago (R5).
    - `settled`: True if the caches show all earlier writes for this set (R9).
    - `now`: the time of the wall clock when the snapshot was taken.
    - `burst`: the maximum number of create requests in one reconciliation, and also the maximum number of delete
      requests (R4, R6, R7).
    - `max_replicas`: the maximum number of VMIs of one set, or 0 for no limit (R4).
    - `history`: the revisions of the set (R17).
    - `budgets`: the disruption budgets that matter to the set (P27), or None if they are not known.
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
    history: History
    max_replicas: int = 0
    budgets: Budgets | None = None

    @property
    def key(self) -> ObjectKey:
        return self.owner.metadata.key

    @property
    def revisions(self) -> tuple[ControllerRevision, ...]:
        return self.history.revisions

    @property
    def wrong_annotations(self) -> tuple[Wrong, ...]:
        """The wrong annotations of the set and of its VMIs (P23)."""
        members = (("VMI", group, wrong_on_vmi(group.traits)) for group in self.members.groups)
        return (*self.useless_budget, *all_wrong(self.owner.metadata, Place.SET, members))

    @property
    def useless_budget(self) -> tuple[Wrong, ...]:
        """The annotation that asks for a disruption budget, if the set gets none (P27)."""
        intent = parse_intent(self.owner) if asks_for_budget(self.owner.metadata) else None
        if not isinstance(intent, Intent):
            return ()
        return useless_budget(self.owner.metadata, self.budgets, intent.selector, intent.template.labels, self.members)
