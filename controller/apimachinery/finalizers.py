"""Patches that put our finalizer on an object and take it off (P6), and that let an object go altogether (P2).

None of them ever disturbs another finalizer or owner. Adding writes the whole list, and carries the UID and the
resourceVersion that it was decided on. Taking off is a JSON patch that tests what it removes, and nothing else: a VM
that is shutting down changes its status all the time, and must not be held up by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from informers.meta import ObjectMeta

Step: TypeAlias = dict[str, str]


def addition_patch(meta: ObjectMeta, finalizer: str) -> bytes:
    """A merge patch that adds the finalizer behind those that are there."""
    finalizers = (*(meta.finalizers or ()), finalizer)
    fields = {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers}
    return msgspec.json.encode({"metadata": fields})


def removal_patch(meta: ObjectMeta, finalizer: str) -> bytes:
    """A JSON patch that takes the finalizer off."""
    return _encode(meta, _finalizer_steps(meta, finalizer))


def owner_and_finalizer_removal_patch(meta: ObjectMeta, finalizer: str, owner_uid: str) -> bytes:
    """A JSON patch that takes off this owner's reference and the finalizer, as far as they are there."""
    owners = [reference.uid for reference in meta.owner_references or ()]
    steps = _removals(owners, owner_uid, "/metadata/ownerReferences/{}", tested="/uid")
    return _encode(meta, steps + _finalizer_steps(meta, finalizer))


def _finalizer_steps(meta: ObjectMeta, finalizer: str) -> list[Step]:
    return _removals(meta.finalizers or (), finalizer, "/metadata/finalizers/{}")


def _removals(held: Sequence[str], unwanted: str, path: str, *, tested: str = "") -> list[Step]:
    """Test and remove each that is unwanted, from the last to the first, so that the places of the others stay."""
    steps: list[Step] = []
    for index in reversed(range(len(held))):
        if held[index] == unwanted:
            place = path.format(index)
            steps += [{"op": "test", "path": place + tested, "value": unwanted}, {"op": "remove", "path": place}]
    return steps


def _encode(meta: ObjectMeta, steps: list[Step]) -> bytes:
    return msgspec.json.encode([{"op": "test", "path": "/metadata/uid", "value": meta.uid}, *steps])
