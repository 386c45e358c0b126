"""What is wrong with something a user wrote, as a value: the foreseen counterpart of an exception."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

INVALID_SPEC: Final = "InvalidSpec"
"""The reason of the Event that tells an owner's flaw (R1, P1)."""


_QUOTED_LENGTH: Final = 64


class FieldError(Struct, frozen=True):
    """One sentence for the user: which field, what it says, what would be right. It ends without a period."""

    message: str


def quoted(text: str) -> str:
    """A user's value in quotes, short enough for a message."""
    return f'"{text}"' if len(text) <= _QUOTED_LENGTH else f'"{text[:_QUOTED_LENGTH]}..."'
