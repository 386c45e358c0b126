"""The patches for the actions that first read the object: `RemoveOwnerReference` and `ThreeWayMerge`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from controller.apimachinery.owner_references import release_patch
from controller.runtime.plan import Done, Missing, Outcome, Rejected, RemoveOwnerReference, ThreeWayMerge
from informers.errors import ApiError
from informers.meta import ObjectMeta, controller_of

Merge: TypeAlias = Callable[[bytes, bytes, bytes], bytes | None]
"""A function that computes a merge patch, or returns None if nothing must change.

The arguments are the current object, and the objects that the old and the new template describe.
"""


def owner_removal(action: RemoveOwnerReference, meta: ObjectMeta) -> bytes | Outcome:
    """Return the patch that removes the ownerReference, or `Done` if the object does not have this reference."""
    if all(reference.uid != action.owner_uid for reference in meta.owner_references or ()):
        return Done(action)
    return release_patch(meta, action.owner_uid)


def template_change(merge: Merge, action: ThreeWayMerge, meta: ObjectMeta, current: bytes) -> bytes | Outcome:
    """Return the patch that applies the template change to the current object, or an outcome if no patch is sent.

    The outcome is `Missing` if the object was replaced, is being deleted or has left its owner. It is `Rejected` if the
    object or one of the templates cannot be read. It is `Done` if the object needs no change.
    """
    if meta.uid != action.uid or meta.deletion_timestamp is not None or _has_left(meta, action.owner_uid):
        return Missing(action)
    try:
        patch = merge(current, action.old, action.new)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Rejected(action, ApiError(f"{action.key} cannot be read: {error}"))
    return Done(action, meta.resource_version) if patch is None else patch


def _has_left(meta: ObjectMeta, owner_uid: str) -> bool:
    """Return True if the object has no controller with this UID. Without a UID, the result is False."""
    controller = controller_of(meta)
    return owner_uid != "" and (controller is None or controller.uid != owner_uid)
