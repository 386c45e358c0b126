"""Encodes JSON to the same bytes as the API server.

The data of a ControllerRevision must not change, and the API server compares the bytes of this data. If an owner is
deleted with `--cascade=orphan`, the garbage collector sends a strategic merge patch for each dependent. For such a
patch the API server encodes the whole object again. If vmherd had used another encoding, the bytes of the data would
change. Then the API server would reject the patch, and the owner would never be deleted.
"""

from __future__ import annotations

from typing import Final

import msgspec

_SAFE_IN_HTML: Final = {char.encode(): f"\\u{ord(char):04x}".encode() for char in "<>&\u2028\u2029"}


def encode_as_server(value: object) -> bytes:
    """Return the value as JSON with sorted fields, without spaces, and with the special characters of HTML escaped.

    The fields inside a part of the type `Raw` are not sorted. Such a part must come from the API server, which has
    already sorted the fields.
    """
    text = msgspec.json.encode(value, order="sorted")
    for char, escaped in _SAFE_IN_HTML.items():
        text = text.replace(char, escaped)
    return text
