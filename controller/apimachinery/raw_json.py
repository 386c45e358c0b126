"""Reads or changes a value in a JSON document. The bytes of all other values stay the same, also in unknown fields.

A value with an unexpected type stays unchanged, because the API server validates the type.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

Wire: TypeAlias = bytes | Raw
Fields: TypeAlias = dict[str, Raw]
T = TypeVar("T")

NULL: Final = Raw(b"null")

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def fields_of(value: Wire) -> Fields | None:
    return _decoded(_decode_fields, value)


def items_of(value: Wire) -> list[Raw] | None:
    return _decoded(_decode_items, value)


def text_of(value: Wire) -> str | None:
    return _decoded(_decode_text, value)


def _decoded(decode: Callable[[Wire], T], value: Wire) -> T | None:
    try:
        return decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def value_at(value: Wire, *path: str) -> Raw:
    """Return the value at the path, or a JSON null if the path does not exist."""
    for name in path:
        value = (fields_of(value) or {}).get(name, NULL)
    return Raw(value)


def change_at(value: bytes, path: tuple[str, ...], change: Callable[[bytes], bytes]) -> bytes:
    """Replace the value at the path. The document is unchanged if the path does not exist or the new value is equal."""
    if not path:
        return change(value)
    fields = fields_of(value)
    if fields is None or path[0] not in fields:
        return value
    before = bytes(fields[path[0]])
    after = change_at(before, path[1:], change)
    return value if after == before else msgspec.json.encode({**fields, path[0]: Raw(after)})


def change_each(value: bytes, change: Callable[[Fields], Fields]) -> bytes:
    """Replace each object of a JSON list. Everything else stays unchanged."""
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


_SAFE_IN_HTML: Final = {char.encode(): f"\\u{ord(char):04x}".encode() for char in "<>&\u2028\u2029"}


def encode_as_server(value: object) -> bytes:
    """Return the value as the API server encodes it: sorted fields, no spaces, special characters of HTML escaped.

    The API server compares the bytes of a ControllerRevision's data, which must not change. After `--cascade=orphan`,
    it encodes each dependent again: it would reject another spelling, and the owner would never be deleted. The fields
    inside a `Raw` are not sorted, so it must come from the API server.
    """
    text = msgspec.json.encode(value, order="sorted")
    for char, escaped in _SAFE_IN_HTML.items():
        text = text.replace(char, escaped)
    return text
