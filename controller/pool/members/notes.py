"""Annotations that the controller writes on a pool, with one entry for each ordinal. They are called notes.

The annotations are on the pool because they must survive the deletion of a VM and a restart of the controller. A
malformed value counts as empty, because any user can edit annotations.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta, annotations_of

MAX_ENTRIES: Final = 1000
"""The maximum number of entries in one annotation. This number of entries needs a third of the maximum size of
annotations.
"""

VALID_NUMBERS: Final = range(10**9)
"""The valid values of an ordinal or a count in an entry."""

Entry = TypeVar("Entry", bound=Struct)


class Record(Struct, frozen=True, array_like=True):
    """The last healing of an ordinal (P15).

    `uid` is the UID of the deleted VM. `count` is the number of healings in a row. The field `at` is the time of the
    last healing.
    """

    uid: str
    count: int
    at: datetime


def read_note(pool: ObjectMeta, annotation: str, entry: type[Entry]) -> Mapping[int, Entry]:
    """Return the entries of the pool's annotation, by ordinal. The result is empty if the value cannot be parsed."""
    text = annotations_of(pool).get(annotation, "")
    try:
        entries: dict[int, Entry] = msgspec.json.decode(text, type=dict[int, entry]) if text else {}  # type: ignore[valid-type]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return {ordinal: each for ordinal, each in entries.items() if ordinal in VALID_NUMBERS}


def encode_note(entries: Mapping[int, Struct]) -> str | None:
    """Return the value of an annotation with these entries. Without entries, the annotation is not needed."""
    return msgspec.json.encode({ordinal: entries[ordinal] for ordinal in sorted(entries)}).decode() if entries else None
