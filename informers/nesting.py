"""This module finds values in JSON that are nested too deeply for the decoder.

The API server stores objects with up to 10,000 levels. The decoder fails at about 1,000 levels, even if it only skips
the value. Without this module, one such object would make a whole list undecodable.
"""

import re
from typing import Final

DEEPEST: Final = 300
"""The largest number of levels that `cut_deep_values` keeps.

The limit of the decoder depends on the depth of the call stack. This number is always below the limit.
"""

TOO_DEEP: Final = b'"vmherd: nested too deeply"'
"""The JSON text that replaces a value below level `DEEPEST`. No real value is equal to this text."""

WHY: Final = "the object is nested too deeply"

_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
_OPENING: Final = b"[{"
_CLOSING: Final = b"]}"


def cut_deep_values(document: bytes) -> bytes:
    """Return the document without deep values: each object and list below level `DEEPEST` is replaced by `TOO_DEEP`.

    The function does not check whether the document is valid JSON. It needs about 0.1 s for ten megabytes.
    """
    kept: list[bytes] = []
    level, copied, cut_from = 0, 0, 0
    for token in _TOKENS.finditer(document):
        char = document[token.start()]
        if char in _OPENING:
            level += 1
            if level == DEEPEST + 1:
                cut_from = token.start()
        elif char in _CLOSING:
            level -= 1
            if level == DEEPEST:
                kept += [document[copied:cut_from], TOO_DEEP]
                copied = token.end()
    return b"".join((*kept, document[copied:])) if kept else document
