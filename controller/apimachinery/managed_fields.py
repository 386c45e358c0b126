"""Who wrote a field of an object, as the API server notes it in `metadata.managedFields`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

LATEST: Final = datetime.max.replace(tzinfo=UTC)


class _Fields(Struct, frozen=True):
    manager: str = ""
    time: datetime | None = None
    fields: Mapping[str, Any] = msgspec.field(default={}, name="fieldsV1")


class _Meta(Struct, frozen=True, rename="camel"):
    managed_fields: tuple[_Fields, ...] = ()


class _Written(Struct, frozen=True):
    metadata: _Meta = _Meta()


_decode = msgspec.json.Decoder(_Written).decode


def last_writer(answer: bytes, *fields: str) -> str:
    """Return the field manager that last wrote one of these fields of the spec, or "" if the object does not tell."""
    try:
        managed = _decode(answer).metadata.managed_fields
    except (msgspec.DecodeError, RecursionError):
        return ""
    wanted = {f"f:{each}" for each in fields}
    found = [each for each in managed if wanted & (each.fields.get("f:spec") or {}).keys()]
    # The server notes no time for a write of the subresource `scale`. The writer of another value is the only one left.
    return max(((each.time or LATEST, each.manager) for each in found), default=(LATEST, ""))[1]
