"""Who an object belongs to: ownerReferences as KubeVirt and CDI write them."""

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
    """The reference that makes this object the one controller."""
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


def is_free(meta: ObjectMeta) -> bool:
    """Whether it may be adopted: it has no controller, and stays."""
    return controller_of(meta) is None and meta.deletion_timestamp is None


def adoption(meta: ObjectMeta, controller: OwnerReference) -> Patch:
    """The patch that puts the controller on an object, beside its other owners.

    A list is replaced as a whole, so it is only taken by the version that was read. A reference to the same object that
    was there and made it no controller gives way.
    """
    others = tuple(owner for owner in meta.owner_references or () if owner.uid != controller.uid)
    return Patch(
        _encode(
            _Body(_Meta(uid=meta.uid, resource_version=meta.resource_version, owner_references=(*others, controller)))
        )
    )
