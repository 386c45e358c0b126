"""Changes conditions, and decides about owners, as KubeVirt and CDI do. An unknown time is left out, not `null`."""

from typing import Any, TypeAlias

from controller.apimachinery.conditions import Condition, find_condition
from controller.apimachinery.owner_references import adoption_patch, controller_reference
from informers.meta import ObjectMeta, controller_of
from informers.resource import Resource
from sandbox.step import Change, Patch

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
