"""Patches that put our finalizer on an object and take it off (P6), and that let an object go altogether (P2).

None of them ever disturbs another finalizer or owner. Adding writes the whole list, and carries the UID and the
resourceVersion that it was decided on. Taking off is a JSON patch that tests what it removes, and nothing else: a VM
that is shutting down changes its status all the time, and must not be held up by that.
"""

from __future__ import annotations

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


def letting_go_patch(meta: ObjectMeta, finalizer: str, owner_uid: str) -> bytes:
    """A JSON patch that takes off this owner's reference and the finalizer, as far as they are there."""
    steps: list[Step] = []
    for index, reference in reversed(list(enumerate(meta.owner_references or ()))):
        if reference.uid == owner_uid:
            path = f"/metadata/ownerReferences/{index}"
            steps += [{"op": "test", "path": f"{path}/uid", "value": owner_uid}, {"op": "remove", "path": path}]
    return _encode(meta, steps + _finalizer_steps(meta, finalizer))


def _finalizer_steps(meta: ObjectMeta, finalizer: str) -> list[Step]:
    finalizers = meta.finalizers or ()
    if finalizer not in finalizers:
        return []
    path = f"/metadata/finalizers/{finalizers.index(finalizer)}"
    return [{"op": "test", "path": path, "value": finalizer}, {"op": "remove", "path": path}]


def _encode(meta: ObjectMeta, steps: list[Step]) -> bytes:
    return msgspec.json.encode([{"op": "test", "path": "/metadata/uid", "value": meta.uid}, *steps])
