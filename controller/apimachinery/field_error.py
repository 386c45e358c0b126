"""An error in a field that a user wrote. It is a return value, not an exception, because such errors are expected."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

INVALID_SPEC: Final = "InvalidSpec"
"""The reason of the Event that reports an error in an owner's spec (R1, P1)."""


_QUOTED_LENGTH: Final = 64


class FieldError(Struct, frozen=True):
    """An error as one sentence for the user: the field, its value, and the allowed values. The sentence has no final
    period.
    """

    message: str


def quoted(text: str) -> str:
    """A user's value in quotes, for a message. A long value is cut."""
    return f'"{text}"' if len(text) <= _QUOTED_LENGTH else f'"{text[:_QUOTED_LENGTH]}..."'
