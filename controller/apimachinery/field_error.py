"""An error in a field that a user wrote.

Functions return this error instead of raising it, because errors of users are expected.
"""

from typing import Final

from msgspec import Struct

INVALID_SPEC: Final = "InvalidSpec"
"""The reason of the Event that reports an error in the spec of a set or pool (R1, P1)."""


_QUOTED_LENGTH: Final = 64


class FieldError(Struct, frozen=True):
    """An error in a field that a user wrote. `message` is one sentence with field, value and allowed values."""

    message: str


def quoted(text: str) -> str:
    """Return a user's value in quotes, for a message. Only the first 64 characters of a longer value are returned."""
    return f'"{text}"' if len(text) <= _QUOTED_LENGTH else f'"{text[:_QUOTED_LENGTH]}..."'
