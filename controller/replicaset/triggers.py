"""Triggers: they decide for which replica sets a change starts a pass, and after which delay (R16).

The functions here are pure. They take a change and return keys of sets with delays. There are three cases:

- No delay: the change may require a write to a VMI.
- `COUNT_DELAY_S`: the change only affects the counts in the status or the order of a later scale-in.
- No pass: the change affects no decision. This holds for most status updates that a node makes on a VMI.
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

Trigger: TypeAlias = tuple[ObjectKey, float]
"""The key of a set, and the delay in seconds before its pass."""

COUNT_DELAY_S: Final = 0.2
"""Delay of a pass that only updates counts, so that several changes share one pass.

Example: if 1,000 VMIs of a set become ready within seconds, the set writes its status a few times and not 1,000 times.
"""


def replicasets_of_vmi(change: Change[VirtualMachineInstance], sets: StoreView[ReplicaSet]) -> Iterable[Trigger]:
    """The replica sets that need a pass because of a change of a VMI."""
    match change:
        case Added(new=vmi) | Removed(last_known=vmi):
            return [(key, 0.0) for key in _owner_or_adopters(vmi, sets)]
        case Updated(old=old, new=new):
            return _of_update(old, new, sets)


def replicasets_of_replicaset(change: Change[ReplicaSet]) -> Iterable[Trigger]:
    """The replica set that changed, if the change affects a decision.

    A change of the status starts a pass too, after a short delay, for two reasons. Another client may have overwritten
    our status, or a status that waited for this one can now be written. Our own status write therefore causes one more
    pass, which writes nothing.

    A change of only the condition `ReplicaFailure` starts no pass. Its message may differ after each failure, and a
    pass at each change would bypass the backoff.
    """
    match change:
        case Added(new=owner) | Removed(last_known=owner):
            return [(owner.metadata.key, 0.0)]
        case Updated(old=old, new=new):
            if _planning_input(old) != _planning_input(new):
                return [(new.metadata.key, 0.0)]
            return [(new.metadata.key, COUNT_DELAY_S)] if _reported_status(old) != _reported_status(new) else []


def _of_update(
    old: VirtualMachineInstance, new: VirtualMachineInstance, sets: StoreView[ReplicaSet]
) -> Iterable[Trigger]:
    old_owner, new_owner = controller_of(old.metadata), controller_of(new.metadata)
    old_uid, new_uid = old_owner and old_owner.uid, new_owner and new_owner.uid
    if old_uid != new_uid:
        keys = dict.fromkeys((*_owner_or_adopters(old, sets), *_owner_or_adopters(new, sets)))
        return [(key, 0.0) for key in keys]
    if new_uid is None:
        if labels_of(old.metadata) == labels_of(new.metadata):
            return []
        return [(key, 0.0) for key in _owner_or_adopters(new, sets)]
    if is_deleting(old) and is_deleting(new):
        return []
    if _write_input(old) != _write_input(new):
        return [(key, 0.0) for key in _owner_or_adopters(new, sets)]
    if _count_input(old) != _count_input(new):
        return [(key, COUNT_DELAY_S) for key in _owner_or_adopters(new, sets)]
    return []


def _owner_or_adopters(vmi: VirtualMachineInstance, sets: StoreView[ReplicaSet]) -> Iterator[ObjectKey]:
    """Yield the set that controls the VMI. For an orphan, yield the sets of its namespace that match its labels."""
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


def _write_input(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """The fields of a VMI that may require a write if they change: state, labels, and the marks that users set."""
    meta = vmi.metadata
    return (
        is_deleting(vmi),
        is_spent(vmi),
        labels_of(meta),
        is_marked(meta, REMOVE),
        is_marked(meta, PROTECT),
    )


def _count_input(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """The fields of a VMI that affect the counts, a waiting rollout or the order of a later scale-in.

    The node is here because a change of the node requires no write. It only affects the order of a later scale-in, and
    each VMI that starts causes such a change.
    """
    return (is_ready(vmi), phase_of(vmi), node_of(vmi))


def _planning_input(owner: ReplicaSet) -> tuple[object, ...]:
    """The fields of a set that a plan depends on.

    The spec is compared in addition to the generation, because not every CRD increments the generation.
    """
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


def _reported_status(owner: ReplicaSet) -> tuple[object, ...]:
    """The fields of the status, without the condition `ReplicaFailure`."""
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
