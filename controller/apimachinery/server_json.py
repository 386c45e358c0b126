"""Encodes JSON byte for byte as the API server does.

The API server compares bytes for JSON whose fields it does not know, such as the data of a ControllerRevision, which
must not change. If an owner is deleted with `--cascade=orphan`, the garbage collector sends a strategic merge patch to
each dependent. With such a patch the API server encodes the whole object again. Data in another encoding would count as
changed, the API server would reject the patch, and the owner would never be deleted.
"""

from __future__ import annotations

from typing import Final

import msgspec

_SAFE_IN_HTML: Final = {char.encode(): f"\\u{ord(char):04x}".encode() for char in "<>&\u2028\u2029"}


def encode_as_server(value: object) -> bytes:
    """The value as JSON with sorted fields, without spaces, and with the special characters of HTML escaped. Parts of
    the type `Raw` must come from the API server.
    """
    text = msgspec.json.encode(value, order="sorted")
    for char, escaped in _SAFE_IN_HTML.items():
        text = text.replace(char, escaped)
    return text
