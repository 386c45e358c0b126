"""Which sets a change concerns, and how soon (R16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.indexes import NAMESPACE
from controller.apimachinery.label_selectors import LabelSelector, parse_selector
from controller.kubevirt.annotations import PROGRESS_DEADLINE, PROTECT, REMOVE, ROLLING_UPDATE, is_marked
from controller.kubevirt.conditions import without_failure
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_deleting, is_ready, is_spent, node_of, phase_of
from controller.runtime.triggers import Wake, itself, wakes_of
from informers.meta import ObjectKey, annotations_of, controller_of, labels_of
from informers.store import Change, StoreView


def replicasets_of_vmi(change: Change[VirtualMachineInstance], sets: StoreView[ReplicaSet]) -> Iterable[Wake]:
    """The sets to look at because a VMI changed."""
    return wakes_of(change, lambda vmi: _concerned(vmi, sets), decides_by=_decides_by, counts_by=_counts_by)


def replicasets_of_replicaset(change: Change[ReplicaSet]) -> Iterable[Wake]:
    """The set itself, if a plan reads what changed, or if its status changed: another writer may have overwritten ours,
    or a status that had to wait for this one can be written now. Our own write costs one pass that finds nothing to do.
    """
    return wakes_of(change, itself, decides_by=_asks_for, counts_by=lambda owner: without_failure(owner.status))


def _concerned(vmi: VirtualMachineInstance, sets: StoreView[ReplicaSet]) -> Iterator[ObjectKey]:
    """The set that controls it; for an orphan, the sets of its namespace that would adopt it."""
    meta = vmi.metadata
    reference = controller_of(meta)
    if reference is not None:
        owner = sets.get(ObjectKey(meta.namespace, reference.name))
        if owner is not None and owner.metadata.uid == reference.uid:
            yield owner.metadata.key
        return
    labels = labels_of(meta)
    for candidate in sets.by_index(NAMESPACE, meta.namespace):
        selector = parse_selector(candidate.spec.selector or LabelSelector())
        if not isinstance(selector, FieldError) and not selector.is_empty and selector.matches(labels):
            yield candidate.metadata.key


def _decides_by(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """What can call for a write: its owner, and of a member whether it counts at all, its labels and its user's marks.

    A VMI without a controller matters by its labels alone. Nothing is decided about a member that is being deleted.
    """
    meta = vmi.metadata
    owner = controller_of(meta)
    if owner is None:
        return (None, labels_of(meta))
    if is_deleting(vmi):
        return (owner.uid, None)
    return (owner.uid, labels_of(meta), is_spent(vmi), is_marked(meta, REMOVE), is_marked(meta, PROTECT))


def _counts_by(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """What the status counts, what a rollout waits for, and where it runs.

    A node alone calls for no write: it only matters to whom a later scale-in prefers, and there are as many such
    changes as there are VMIs that start.
    """
    if is_deleting(vmi) or controller_of(vmi.metadata) is None:
        return ()
    return (is_ready(vmi), phase_of(vmi), node_of(vmi))


def _asks_for(owner: ReplicaSet) -> tuple[object, ...]:
    """What a plan reads of a set. The spec as well as its generation, which not every CRD counts up."""
    meta = owner.metadata
    annotations = annotations_of(meta)
    return (
        meta.uid,
        meta.generation,
        meta.deletion_timestamp is None,
        annotations.get(ROLLING_UPDATE),
        annotations.get(PROGRESS_DEADLINE),
        owner.spec,
    )
