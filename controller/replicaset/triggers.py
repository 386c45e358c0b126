"""Which sets a change concerns, and how soon (R16). Pure: a change in, keys and delays out.

Three answers. At once: the change can call for a write to a VMI. Within `COUNT_DELAY_S`: it moves only what the status
counts or what a later choice ranks by. Never: it alters no decision, as most of what a node reports about a VMI does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from controller.apimachinery.conditions import Condition
from controller.apimachinery.field_error import FieldError
from controller.apimachinery.indexes import NAMESPACE
from controller.apimachinery.label_selectors import LabelSelector, parse_selector
from controller.kubevirt.annotations import PROGRESS_DEADLINE, PROTECT, REMOVE, ROLLING_UPDATE, is_marked
from controller.kubevirt.conditions import REPLICA_FAILURE
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_deleting, is_ready, is_spent, node_of, phase_of
from informers.meta import ObjectKey, annotations_of, controller_of, labels_of
from informers.store import Added, Change, Removed, StoreView, Updated

Wake: TypeAlias = tuple[ObjectKey, float]

COUNT_DELAY_S: Final = 0.2
"""How long a change of mere counts may wait for more of its kind: a set whose 1,000 VMIs become ready within seconds
writes its status a few times, and not 1,000 times."""


def replicasets_of_vmi(change: Change[VirtualMachineInstance], sets: StoreView[ReplicaSet]) -> Iterable[Wake]:
    """The sets to look at because a VMI changed."""
    match change:
        case Added(new=vmi) | Removed(last_known=vmi):
            return [(key, 0.0) for key in _concerned(vmi, sets)]
        case Updated(old=old, new=new):
            return _of_update(old, new, sets)


def replicasets_of_replicaset(change: Change[ReplicaSet]) -> Iterable[Wake]:
    """The set itself, unless nothing that it decides by has changed.

    A changed status wakes it too, a little later: somebody may have overwritten ours, or a status that had to wait for
    this one can go now. Our own write costs one pass that finds nothing to do, and ends there. Only a change of nothing
    but `ReplicaFailure` wakes nobody: its message may differ after each failure, and must not cut the backoff short.
    """
    match change:
        case Added(new=owner) | Removed(last_known=owner):
            return [(owner.metadata.key, 0.0)]
        case Updated(old=old, new=new):
            if _asks_for(old) != _asks_for(new):
                return [(new.metadata.key, 0.0)]
            return [(new.metadata.key, COUNT_DELAY_S)] if _reports(old) != _reports(new) else []


def _of_update(old: VirtualMachineInstance, new: VirtualMachineInstance, sets: StoreView[ReplicaSet]) -> Iterable[Wake]:
    old_owner, new_owner = controller_of(old.metadata), controller_of(new.metadata)
    old_uid, new_uid = old_owner and old_owner.uid, new_owner and new_owner.uid
    if old_uid != new_uid:
        return [(key, 0.0) for key in dict.fromkeys((*_concerned(old, sets), *_concerned(new, sets)))]
    if new_uid is None:
        if labels_of(old.metadata) == labels_of(new.metadata):
            return []
        return [(key, 0.0) for key in _concerned(new, sets)]
    if is_deleting(old) and is_deleting(new):
        return []
    if _decides_by(old) != _decides_by(new):
        return [(key, 0.0) for key in _concerned(new, sets)]
    if _counts_by(old) != _counts_by(new):
        return [(key, COUNT_DELAY_S) for key in _concerned(new, sets)]
    return []


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
    """What can call for a write: whether it counts at all, whose it is by its labels, and its user's marks."""
    meta = vmi.metadata
    return (
        is_deleting(vmi),
        is_spent(vmi),
        labels_of(meta),
        is_marked(meta, REMOVE),
        is_marked(meta, PROTECT),
    )


def _counts_by(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """What the status counts, what a rollout waits for, and where it runs.

    A node alone calls for no write: it only matters to whom a later scale-in prefers, and there are as many such
    changes as there are VMIs that start.
    """
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


def _reports(owner: ReplicaSet) -> tuple[object, ...]:
    """The status without `ReplicaFailure`."""
    status = owner.status
    if status is None:
        return ()
    others: list[Condition] = [c for c in status.conditions or () if c.type != REPLICA_FAILURE]
    return (
        status.replicas,
        status.ready_replicas,
        status.updated_replicas,
        status.observed_generation,
        status.label_selector,
        others,
    )
