"""Pure functions for the status of a set or pool after a reconciliation (R11, P17)."""

from collections.abc import Container
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

T = TypeVar("T")


def recounted(planned: T, latest: T) -> T | None:
    """Return `latest` with the spec and generation of `planned`, or None if its owner is another one now."""
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
    """Return the merge patch that sets the status of `owner` to `new`, or None if nothing changes.

    It contains the resourceVersion, because the API server ignores the UID. `known` are the fields of the served
    schema, or None for all: the server drops others, so each reconciliation would write them again.
    """
    fields = zip(new.__struct_encode_fields__, new.__struct_fields__, strict=True)
    names = {encoded: name for encoded, name in fields if known is None or encoded in known}
    if all(_or_none(getattr(owner.status, name, None)) == _or_none(getattr(new, name)) for name in names.values()):
        return None
    metadata = {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}
    status = {encoded: getattr(new, name) for encoded, name in names.items()}
    return msgspec.json.encode({"metadata": metadata, "status": status})


def _owner(snapshot: Any) -> Any:
    return snapshot.owner


def _or_none(value: object) -> object:
    """Return None for an empty list, because an empty list of conditions means the same as none."""
    return None if value == () else value
