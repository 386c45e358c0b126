"""The status of an owner after a pass: the snapshot for its status, and the patch that writes it (R11, P17). Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields, replace

T = TypeVar("T")


def recounted(planned: T, latest: T) -> T | None:
    """The snapshot from which the status is made: the latest state, but with the spec and generation of the plan.

    If the spec changed while the plan was carried out, the new spec was not observed by the plan and must not be
    reported as observed. Returns None if another owner of the same name has replaced the owner: no status is written
    for it.
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
    """The merge patch that sets the status of the owner to `new`; None if the status already is `new`.

    The patch contains the owner's resourceVersion. It protects another owner of the same name, because the API server
    ignores the UID in a patch of a status. The patch contains all fields of the status: a null removes a field, and a
    list is replaced as a whole.

    `known` are the status fields in the served schema; None means all fields. The API server drops all other fields. A
    status with such a field would still differ after each write, and would be written again in each pass.
    """
    names = {field.encode_name: field.name for field in fields(new) if known is None or field.encode_name in known}
    if all(_or_none(getattr(owner.status, name, None)) == _or_none(getattr(new, name)) for name in names.values()):
        return None
    metadata = {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}
    status = {encoded: getattr(new, name) for encoded, name in names.items()}
    return msgspec.json.encode({"metadata": metadata, "status": status})


def _owner(snapshot: Any) -> Any:
    return snapshot.owner


def _or_none(value: object) -> object:
    """The value, with None for an empty list: an empty list of conditions means the same as an absent list."""
    return None if value == () else value
