"""This module reads and writes ownerReferences in the same way as KubeVirt and CDI."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta, OwnerReference, controller_of
from informers.resource import Resource
from sandbox.step import Patch


class _Meta(Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    resource_version: str
    owner_references: tuple[OwnerReference, ...]


class _Body(Struct, frozen=True):
    metadata: _Meta


_encode: Final = msgspec.json.Encoder().encode


def controlled_by(resource: Resource[Any], owner: ObjectMeta) -> OwnerReference:
    """Return the ownerReference that makes `owner` the controller of an object. `resource` is the kind of `owner`."""
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def is_controlled_by(meta: ObjectMeta, owner: ObjectMeta) -> bool:
    reference = controller_of(meta)
    return reference is not None and reference.uid == owner.uid


def can_be_adopted(meta: ObjectMeta) -> bool:
    """Return True if the object has no controller and is not being deleted."""
    return controller_of(meta) is None and meta.deletion_timestamp is None


def adoption_patch(meta: ObjectMeta, controller: OwnerReference) -> Patch:
    """Return the patch that adds the controller to the ownerReferences of an object.

    The patch keeps the references to other owners. If the object already has a reference to the controller, the patch
    replaces this reference. A merge patch replaces the whole list. So the patch contains the resource version: the API
    server then rejects the patch if another client has changed the object.
    """
    others = tuple(owner for owner in meta.owner_references or () if owner.uid != controller.uid)
    return Patch(
        _encode(
            _Body(_Meta(uid=meta.uid, resource_version=meta.resource_version, owner_references=(*others, controller)))
        )
    )
