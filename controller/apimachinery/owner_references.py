"""References from a child to its owners, and the patches that change them (R2).

Both patches are JSON merge patches that carry the UID and the resourceVersion they were decided on: when the object
has changed since, or is another one by now, the API server refuses them. A merge patch replaces lists whole, so both
write all references, the others as they were.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from informers.meta import KubeObject, ObjectMeta, OwnerReference
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)


def controller_reference(resource: Resource[T], owner: ObjectMeta) -> OwnerReference:
    """The reference that makes `owner` the controller of what carries it."""
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def adoption_patch(child: ObjectMeta, reference: OwnerReference) -> bytes:
    """Give `child` this controller. A plain reference of the same owner becomes the controlling one."""
    return _patch(child, (*_others(child, reference.uid), reference))


def release_patch(child: ObjectMeta, owner_uid: str) -> bytes:
    """Take the owner's reference off `child`, and nothing else."""
    return _patch(child, _others(child, owner_uid))


def _others(child: ObjectMeta, uid: str) -> tuple[OwnerReference, ...]:
    return tuple(reference for reference in child.owner_references or () if reference.uid != uid)


def _patch(child: ObjectMeta, references: tuple[OwnerReference, ...]) -> bytes:
    metadata = {"uid": child.uid, "resourceVersion": child.resource_version, "ownerReferences": references}
    return msgspec.json.encode({"metadata": metadata})
