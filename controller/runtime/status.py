"""Pure functions for the status of a set or pool after a reconciliation (R11, P17)."""

from collections.abc import Container
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

T = TypeVar("T")


def recounted(planned: T, latest: T) -> T | None:
    """Return the snapshot from which the status is computed.

    The result is the snapshot `latest`, but with the spec and the generation of the snapshot `planned`. The spec may
    have changed since the plan was made. The status must report the generation for which the plan was made.

    Return None if another set or pool of the same name exists now. In this case no status is written.
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
    """Return the merge patch that sets the status of `owner` to `new`, or None if nothing changes.

    The patch contains the resourceVersion. The API server ignores the UID in a patch of a status. Without the
    resourceVersion, the patch could change another object of the same name. The patch contains all fields of the
    status. A field with the value null is removed from the status. A list replaces the whole old list.

    `known` are the status fields in the served schema. None means all fields. The API server drops all fields that are
    not in the schema. Without `known`, the stored status would always differ from `new`, and every reconciliation would
    write the status again.
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
