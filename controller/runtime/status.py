"""The status that a pass reports: which owner it is about, and the patch that writes it (R11, P17). Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields, replace

T = TypeVar("T")


def recounted(planned: T, latest: T) -> T | None:
    """The snapshot that a status is made from: the newest facts, under the spec that was planned from.

    A spec that changed while the plan was carried out has not been observed yet, and must not be reported as observed.
    None if another owner of the same name has taken the owner's place: the pass says nothing about that one.
    """
    before, after = _owner(planned), _owner(latest)
    if before.metadata.uid != after.metadata.uid:
        return None
    if before.metadata.generation == after.metadata.generation:
        return latest
    metadata = replace(after.metadata, generation=before.metadata.generation)
    owner = replace(after, metadata=metadata, spec=before.spec)
    changed: T = replace(latest, owner=owner)  # type: ignore[type-var]
    return changed


def status_patch(owner: Any, new: Any, *, known: Container[str] | None = None) -> bytes | None:
    """The merge patch that makes `new` the status of this version of its owner; None if it already is.

    The resourceVersion protects another owner of the same name: the API server ignores a UID in a patch of a status.
    The patch has all fields: null removes a field, and a list is replaced whole.

    `known` are the fields that the served schema has; None stands for all. The API server drops any other field, so a
    status with such a field would differ after each write, and be written again in each pass.
    """
    names = {field.encode_name: field.name for field in fields(new) if known is None or field.encode_name in known}
    if all(_said(getattr(owner.status, name, None)) == _said(getattr(new, name)) for name in names.values()):
        return None
    metadata = {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}
    status = {encoded: getattr(new, name) for encoded, name in names.items()}
    return msgspec.json.encode({"metadata": metadata, "status": status})


def _owner(snapshot: Any) -> Any:
    return snapshot.owner


def _said(value: object) -> object:
    """An empty list of conditions says no more than an absent one."""
    return None if value == () else value
