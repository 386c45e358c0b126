"""This module decides which replica sets are reconciled after a change in a cache, and after which delay (R16)."""

from collections.abc import Iterable, Iterator
from itertools import chain

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import LabelSelector, SelectorCache
from controller.kubevirt.annotations import REMOVE, is_marked, is_protected, own_notes
from controller.kubevirt.busy import busy_mark
from controller.kubevirt.problems import problem_state_of_vmi
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND, ReplicaSet
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_deleting, is_paused, is_ready, is_spent, node_of, phase_of
from controller.replicas.draining import drain_marks
from controller.replicas.revisions import former_set_of
from controller.replicas.triggers import controller_key
from controller.replicaset.snapshot import REQUIRED_LABEL, former_set_of_vmi, label_key
from controller.replicaset.traits import wrong_on_vmi
from controller.runtime.triggers import Wake, wakes_of
from informers.meta import ObjectKey, controller_of, labels_of
from informers.store import Change, StoreView

NO_SELECTOR = LabelSelector()


def replicasets_of_vmi(
    change: Change[VirtualMachineInstance], sets: StoreView[ReplicaSet], selectors: SelectorCache | None = None
) -> Iterable[Wake]:
    """Return the sets to reconcile after a change of a VMI, with delays in seconds."""
    known = selectors or SelectorCache()
    return wakes_of(
        change, lambda vmi: _owner_or_adopters(vmi, sets, known), decides_by=_write_input, counts_by=_count_input
    )


def replicasets_of_revision(change: Change[ControllerRevision]) -> Iterable[Wake]:
    """Return the set that controls the revision. If no owner controls it, return the set that created it."""

    def owners_of(revision: ControllerRevision) -> Iterable[ObjectKey]:
        return former_set_of(revision) or controller_key(revision.metadata, REPLICA_SET_KIND)

    return wakes_of(change, owners_of, decides_by=lambda each: (each.metadata.uid, each.metadata.owner_references))


def _owner_or_adopters(
    vmi: VirtualMachineInstance, sets: StoreView[ReplicaSet], selectors: SelectorCache
) -> Iterator[ObjectKey]:
    """Yield the set that controls the VMI, or for an orphan the matching sets, and the one that left notes on it."""
    meta = vmi.metadata
    reference = controller_of(meta)
    if reference is not None:
        owner = sets.get(ObjectKey(meta.namespace, reference.name))
        if owner is not None and owner.metadata.uid == reference.uid:
            yield owner.metadata.key
        return
    yield from former_set_of_vmi(vmi)
    labels = labels_of(meta)
    # A set is found by its required label, or if it has none, by the namespace.
    keys = (meta.namespace, *(label_key(meta.namespace, *label) for label in labels.items()))
    for candidate in chain.from_iterable(sets.by_index(REQUIRED_LABEL, key) for key in keys):
        selector = selectors.parse(candidate.metadata.key, candidate.spec.selector or NO_SELECTOR)
        if not isinstance(selector, FieldError) and not selector.is_empty and selector.matches(labels):
            yield candidate.metadata.key


def _write_input(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """Return what can affect a write at once: little of an orphan, and only the controller of a terminating VMI."""
    meta = vmi.metadata
    owner = controller_of(meta)
    if owner is None:
        return (None, labels_of(meta), own_notes(meta))
    if is_deleting(vmi):
        return (owner.uid, None)
    return (
        owner.uid,
        labels_of(meta),
        is_spent(vmi),
        is_marked(meta, REMOVE),
        is_protected(meta),
        busy_mark(meta),
        drain_marks(meta),
        is_paused(vmi),
    )


def _count_input(vmi: VirtualMachineInstance) -> tuple[object, ...]:
    """Return what affects the status, later choices and a waiting rollout, so that a reconciliation may start later."""
    if is_deleting(vmi) or controller_of(vmi.metadata) is None:
        return ()
    return (is_ready(vmi), phase_of(vmi), node_of(vmi), vmi.undecodable, problem_state_of_vmi(vmi), wrong_on_vmi(vmi))
