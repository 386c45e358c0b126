"""JSON to the byte as the API server writes it.

The server compares bytes where it keeps JSON whose fields it does not know, such as the data of a ControllerRevision,
which may not change. A strategic merge patch has it write the whole object anew, and the garbage collector sends one to
every dependent of an owner that is deleted with `--cascade=orphan`. Data that were not as the server would have written
them count as changed then, the patch is refused, and the owner never goes.
"""

from __future__ import annotations

from typing import Final

import msgspec

_SAFE_IN_HTML: Final = {char.encode(): f"\\u{ord(char):04x}".encode() for char in "<>&\u2028\u2029"}


def encode_as_server(value: object) -> bytes:
    """Fields in order of their names, no spaces, nothing that HTML knows. `Raw` parts must come from the server."""
    text = msgspec.json.encode(value, order="sorted")
    for char, escaped in _SAFE_IN_HTML.items():
        text = text.replace(char, escaped)
    return text
