"""Removes the content of objects from error messages.

The message of a rejected write may quote the written object, for example its cloud-init user data. More people can read
logs and Events than the object. So logs and Events must not contain such a quote.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

HIDDEN: Final = "[hidden]"

CONFIDENTIAL_FIELDS: Final = frozenset(
    {"annotations", "userData", "userDataBase64", "networkData", "networkDataBase64", "kernelArgs", "serial", "env"}
)
"""All texts inside these fields, at any depth, are confidential."""

LONG_TEXT: Final = 100
"""A text of at least this length, or with several lines, is confidential in every field. Names are usually shorter."""

SHORTEST_WORD: Final = 4
PLAIN_WORD: Final = re.compile(r"[A-Za-z]{1,7}")
"""Matches short words. Such words occur in many error messages, so they are hidden only if they are a value."""

HARMLESS_VALUES: Final = frozenset({"true", "false", "null", "none"})

_WORD: Final = re.compile(r"\\++(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)?|([^\s\"'`\\,;:()\[\]{}<>=|]++)")
"""Matches a word, or an escape sequence such as `\\n` in a quoted text. Only a word has the group."""

_VALUE: Final = re.compile(r"[:=][ \t]*+[\"'\\]{0,2}+([A-Za-z]{1,7})(?![\w-])")
"""Matches a short word directly after `:` or `=`, with or without quotes. It may be a password."""


def redacted(message: str, *bodies: bytes, name: str = "") -> str:
    """Return the message without words that occur in a confidential text of one of the written bodies.

    A short word such as `letmein` is removed only if it is a value there: after `:` or `=`, or as the whole text. The
    `name` of the object is no secret.
    """
    each = [text for body in bodies for text in _confidential_texts(body)]
    texts = "\0".join(each)
    if not texts:
        return message
    values = {text for text in (*each, *_VALUE.findall(texts)) if text.lower() not in HARMLESS_VALUES}

    def hide(word: re.Match[str]) -> str:
        text = (word[1] or "").strip(".!?")
        is_secret = text in values if PLAIN_WORD.fullmatch(text) else text in texts
        return HIDDEN if is_secret and len(text) >= SHORTEST_WORD and text != name else word[0]

    return _WORD.sub(hide, message)


def _confidential_texts(body: bytes) -> Iterable[str]:
    """Yield the confidential texts of a JSON document. A document that cannot be decoded has none."""
    try:
        todo: list[tuple[Any, bool]] = [(msgspec.json.decode(body), False)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    while todo:
        value, confidential = todo.pop()
        match value:
            case str() if confidential or len(value) >= LONG_TEXT or "\n" in value:
                yield value
            case dict():
                todo += [(each, confidential or name in CONFIDENTIAL_FIELDS) for name, each in value.items()]
            case list():
                todo += [(each, confidential) for each in value]
