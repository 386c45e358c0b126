"""One place of a JSON document changed, and every other byte left as its user wrote it, known fields and unknown.

Nothing here raises: what has an unexpected shape stays as it is, for the API server to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw

Wire: TypeAlias = bytes | Raw
Fields: TypeAlias = dict[str, Raw]

NULL: Final = Raw(b"null")

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def fields_of(value: Wire) -> Fields | None:
    """An object's fields; None for what is no object."""
    try:
        return _decode_fields(value)
    except _UNREADABLE:
        return None


def items_of(value: Wire) -> list[Raw] | None:
    """A list's elements; None for what is no list."""
    try:
        return _decode_items(value)
    except _UNREADABLE:
        return None


def text_of(value: Wire) -> str | None:
    """A string; None for what is none."""
    try:
        return _decode_text(value)
    except _UNREADABLE:
        return None


def value_at(value: Wire, *path: str) -> Raw:
    """What stands at the path; null where there is no such path."""
    for name in path:
        value = (fields_of(value) or {}).get(name, NULL)
    return Raw(value)


def change_at(value: bytes, path: tuple[str, ...], change: Callable[[bytes], bytes]) -> bytes:
    """Replace what stands at the path, if there is such a path; itself where nothing changes."""
    if not path:
        return change(value)
    fields = fields_of(value)
    if fields is None or path[0] not in fields:
        return value
    before = bytes(fields[path[0]])
    after = change_at(before, path[1:], change)
    return value if after == before else msgspec.json.encode({**fields, path[0]: Raw(after)})


def change_each(value: bytes, change: Callable[[Fields], Fields]) -> bytes:
    """Replace the elements of a list, as far as they are objects; itself where nothing changes."""
    items = items_of(value)
    if items is None:
        return value
    changed = False
    for index, item in enumerate(items):
        fields = fields_of(item)
        if fields is not None and (new := change(fields)) != fields:
            items[index] = Raw(msgspec.json.encode(new))
            changed = True
    return msgspec.json.encode(items) if changed else value
