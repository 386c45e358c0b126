"""Equal values of different objects become one Python object. So a cache with many similar objects needs less memory.

Use `sys.intern` for a text that many objects contain, and the functions of this module for tuples and mappings. The
functions return a value that is equal to their argument. No reader changes these values.
"""

from collections.abc import Hashable, Mapping
from sys import intern
from typing import Any, Final, TypeVar

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

MOST_VALUES: Final = 1024
"""The maximum number of remembered values. When there are more, all are forgotten.

Similar objects are usually neighbours, in a list and in a burst of events. So a small number is enough.
"""

MOST_ITEMS: Final = 16
"""Values with more items are not remembered, so that the remembered values need little memory."""

_values: dict[Hashable, Any] = {}


def shared(items: tuple[H, ...]) -> tuple[H, ...]:
    """Return an earlier tuple that is equal to this tuple, if it is still remembered."""
    return items if len(items) > MOST_ITEMS else _remembered(items, items)


def shared_map(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return an earlier mapping with the same items in the same order, if it is still remembered."""
    if len(texts) > MOST_ITEMS:
        return texts
    key = tuple(texts.items())
    known: Mapping[str, str] | None = _values.get(key)
    if known is not None:
        return known
    return _remembered(key, {name: intern(value) for name, value in key})


def _remembered(key: Hashable, value: T) -> T:
    known: T | None = _values.get(key)
    if known is not None:
        return known
    if len(_values) >= MOST_VALUES:
        _values.clear()
    _values[key] = value
    return value
