"""Patches that add our finalizer to an object, remove it (P6), and remove it together with an ownerReference (P2).

No patch changes the finalizers and ownerReferences of other writers. The patch that adds a finalizer replaces the whole
list, so it has the UID and the resourceVersion of the object it was made from. The patches that remove something are
JSON patches that test only the removed values and the UID. They do not test the resourceVersion: the status of a VM
that is shutting down changes often, and such a change must not delay the removal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from informers.meta import ObjectMeta

Step: TypeAlias = dict[str, str]


def addition_patch(meta: ObjectMeta, finalizer: str) -> bytes:
    """A merge patch that adds the finalizer after the existing finalizers."""
    finalizers = (*(meta.finalizers or ()), finalizer)
    fields = {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers}
    return msgspec.json.encode({"metadata": fields})


def removal_patch(meta: ObjectMeta, finalizer: str) -> bytes:
    """A JSON patch that removes the finalizer."""
    return _encode(meta, _finalizer_steps(meta, finalizer))


def owner_and_finalizer_removal_patch(meta: ObjectMeta, finalizer: str, owner_uid: str) -> bytes:
    """A JSON patch that removes this owner's reference and the finalizer, if the object has them."""
    owners = [reference.uid for reference in meta.owner_references or ()]
    steps = _removals(owners, owner_uid, "/metadata/ownerReferences/{}", tested="/uid")
    return _encode(meta, steps + _finalizer_steps(meta, finalizer))


def _finalizer_steps(meta: ObjectMeta, finalizer: str) -> list[Step]:
    return _removals(meta.finalizers or (), finalizer, "/metadata/finalizers/{}")


def _removals(values: Sequence[str], unwanted: str, path: str, *, tested: str = "") -> list[Step]:
    """The steps that test and remove each unwanted value. They run from the last value to the first, so that the
    indexes of the other values stay valid.
    """
    steps: list[Step] = []
    for index in reversed(range(len(values))):
        if values[index] == unwanted:
            element = path.format(index)
            steps += [{"op": "test", "path": element + tested, "value": unwanted}, {"op": "remove", "path": element}]
    return steps


def _encode(meta: ObjectMeta, steps: list[Step]) -> bytes:
    return msgspec.json.encode([{"op": "test", "path": "/metadata/uid", "value": meta.uid}, *steps])
