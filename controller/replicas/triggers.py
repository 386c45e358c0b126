"""The triggers of sets and pools themselves, and of the objects that they control (R16, P19)."""

from collections.abc import Iterable
from typing import Any

from controller.kubevirt.annotations import HISTORY
from controller.replicas.catalogue import own_annotations
from controller.replicas.conditions import without_failure
from controller.runtime.triggers import Wake, itself, wakes_of
from informers.meta import ObjectKey, ObjectMeta, controller_of
from informers.store import Change


def wakes_of_owner(change: Change[Any]) -> Iterable[Wake]:
    """Return the changed set or pool and a delay in seconds, if the change affects a plan or the status.

    A change of the status counts, because another client may have overwritten it, and because the next status write
    waits until the cache shows this one. A change of only the texts about a failure does not: it would start a
    reconciliation before the end of the backoff.
    """
    return wakes_of(change, itself, decides_by=_planning_input, counts_by=lambda owner: without_failure(owner.status))


def controller_key(meta: ObjectMeta, kind: str) -> Iterable[ObjectKey]:
    """Return the key of the object's controller, if the controller is of this kind. Otherwise return nothing."""
    owner = controller_of(meta)
    return (ObjectKey(meta.namespace, owner.name),) if owner is not None and owner.kind == kind else ()


def _planning_input(owner: Any) -> tuple[object, ...]:
    """Return what a plan depends on. The history is none of it."""
    meta = owner.metadata
    annotations = dict(own_annotations(meta))
    annotations.pop(HISTORY, None)
    return (meta.uid, meta.generation, meta.deletion_timestamp is None, meta.finalizers, annotations, owner.spec)
