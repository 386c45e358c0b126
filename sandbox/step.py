"""`Step`: what a behavior, a pure function of objects and the time, lets `sandbox.kind_simulator` do next."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from controller.apimachinery.conditions import Condition, find_condition
from controller.apimachinery.owner_references import adoption_patch, controller_reference
from informers.meta import KubeObject, ObjectMeta, controller_of
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)


class Patch(Struct, frozen=True):
    """A JSON merge patch for one object. Its body has the UID, so it never changes a new object of the same name."""

    body: bytes
    subresource: str = ""


def patch_of(
    meta: ObjectMeta,
    subresource: str = "",
    *,
    versioned: bool = False,
    metadata: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Patch:
    """Return the patch of the object `meta` with the changes `metadata` and `fields`.

    With `versioned`, as needed to replace a list, the API server rejects the patch if the object has changed.
    """
    version = {"resourceVersion": meta.resource_version} if versioned else {}
    return Patch(
        msgspec.json.encode({"metadata": {"uid": meta.uid, **version, **(metadata or {})}, **fields}), subresource
    )


class Create(Struct, frozen=True):
    """The creation of another object in the same namespace. If the other object already exists, nothing is done."""

    resource: Resource[Any]
    body: bytes


def creation(resource: Resource[Any], metadata: Mapping[str, Any], **fields: Any) -> Create:
    """Return the creation of an object of this kind. Empty metadata is left out."""
    meta = {name: value for name, value in metadata.items() if value}
    document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **fields}
    return Create(resource, msgspec.json.encode(document))


class Change(Struct, frozen=True):
    """A patch of another object in the same namespace. If the other object no longer exists, nothing is done.

    If `adopts` is True, the simulated object becomes the owner of the other object. It is then first read from the API
    server, and nothing is sent if it is being deleted, as in KubeVirt.
    """

    resource: Resource[Any]
    name: str
    patch: Patch
    adopts: bool = False


class Delete(Struct, frozen=True):
    """The deletion of another object in the namespace, if it has this UID. `grace_s` is None for its own period."""

    resource: Resource[Any]
    name: str
    uid: str
    grace_s: int | None = None


Effect: TypeAlias = Create | Change | Delete


class Step(Struct, frozen=True, kw_only=True):
    """The next action for one object. `effects` change other objects, and `write` then patches the object itself.

    A step without both has the seconds until the next call of the behavior in `after_s`, or None to wait for a change.
    """

    effects: tuple[Effect, ...] = ()
    write: Patch | None = None
    after_s: float | None = None


NextStep: TypeAlias = Callable[[T, datetime, datetime], Step]

Conditions: TypeAlias = tuple[Condition, ...]


def updated(conditions: Conditions, new: Condition) -> Conditions:
    """Return the list with the new condition if its status or reason is new (KubeVirt's `UpdateCondition`)."""
    present = find_condition(conditions, new.type)
    if present is None:
        return (*conditions, new)
    if present.status == new.status and (present.reason or "") == (new.reason or ""):
        return conditions
    return tuple(new if condition.type == new.type else condition for condition in conditions)


def without(conditions: Conditions, *types: str) -> Conditions:
    return tuple(condition for condition in conditions if condition.type not in types)


def can_be_adopted(meta: ObjectMeta) -> bool:
    return controller_of(meta) is None and meta.deletion_timestamp is None


def adoption(
    child: Resource[Any], meta: ObjectMeta, resource: Resource[Any], owner: ObjectMeta, *, checked: bool = False
) -> Change:
    """Return the change that makes `owner` the controller of `child`. With `checked`, the owner is first read again."""
    patch = Patch(adoption_patch(meta, controller_reference(resource, owner)))
    return Change(child, meta.name, patch, adopts=checked)
