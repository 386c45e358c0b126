"""Functions for ownerReferences, and patches that add or remove an ownerReference of a child (R2).

Both patches are JSON merge patches that contain the UID and the resourceVersion of the child. The API server rejects
the patch if the child has changed, or if another object has the child's name. A merge patch replaces a list as a whole,
so both patches contain all references that the child keeps. The references to other owners are not changed.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from informers.meta import KubeObject, ObjectMeta, OwnerReference
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)


def controller_reference(resource: Resource[T], owner: ObjectMeta) -> OwnerReference:
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def adoption_patch(child: ObjectMeta, reference: OwnerReference) -> bytes:
    """If the child already has a reference to the same owner, the patch replaces this reference."""
    return _patch(child, (*_others(child, reference.uid), reference))


def release_patch(child: ObjectMeta, owner_uid: str, changes: Mapping[str, object] | None = None) -> bytes:
    """Return the patch that releases the child. `changes` are further changes of its metadata."""
    return _patch(child, _others(child, owner_uid), **changes or {})


def _others(child: ObjectMeta, uid: str) -> tuple[OwnerReference, ...]:
    return tuple(reference for reference in child.owner_references or () if reference.uid != uid)


def _patch(child: ObjectMeta, references: tuple[OwnerReference, ...], **changes: object) -> bytes:
    metadata = {"uid": child.uid, "resourceVersion": child.resource_version, "ownerReferences": references}
    return msgspec.json.encode({"metadata": {**metadata, **changes}})
