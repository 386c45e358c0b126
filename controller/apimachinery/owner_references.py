"""References from a child to its owners, and the patches that change them (R2).

Both patches are JSON merge patches with the UID and the resourceVersion of the child they were made from. If the child
has changed since then, or another object has its name, the API server rejects the patch. A merge patch replaces a list
as a whole, so both patches contain all references of the child. The references of other owners are not changed.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from informers.meta import KubeObject, ObjectMeta, OwnerReference
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)


def controller_reference(resource: Resource[T], owner: ObjectMeta) -> OwnerReference:
    """The reference that makes `owner` the controller of an object with this reference."""
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def adoption_patch(child: ObjectMeta, reference: OwnerReference) -> bytes:
    """The patch that adds the controller `reference` to `child`. A plain reference of the same owner becomes the
    controller reference.
    """
    return _patch(child, (*_others(child, reference.uid), reference))


def release_patch(child: ObjectMeta, owner_uid: str) -> bytes:
    """The patch that removes only the owner's reference from `child`."""
    return _patch(child, _others(child, owner_uid))


def _others(child: ObjectMeta, uid: str) -> tuple[OwnerReference, ...]:
    return tuple(reference for reference in child.owner_references or () if reference.uid != uid)


def _patch(child: ObjectMeta, references: tuple[OwnerReference, ...]) -> bytes:
    metadata = {"uid": child.uid, "resourceVersion": child.resource_version, "ownerReferences": references}
    return msgspec.json.encode({"metadata": metadata})
