"""Compares many JSON values of a few documents by meaning, and visits each value once."""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

import msgspec

Json: TypeAlias = object

Made: TypeAlias = Callable[[Json, Any, Json], Json]
"""A function that is called with a value, its type and its normal form, and returns what takes the place of the normal
form in the normal form around it.
"""

Normalise: TypeAlias = Callable[[Json, Any, Made], Json]
"""A function that returns the normal form of a value of a type. It calls `Made` for the value and for each value inside
it, from the inside out. The normal form is None if the value has the same meaning as an absent field.
"""


class Meanings:
    """Gives each meaning a number. Two values have the same meaning if they have the same number.

    The number of an object or list depends on the numbers inside it, and is remembered. So a comparison at each level
    of a document costs as much as one comparison of the whole document. The documents must not change.
    """

    def __init__(self, normalise: Normalise) -> None:
        self._normalise: Final = normalise
        self._numbers: Final[dict[Hashable, int]] = {}
        # The entries also keep the values alive. Otherwise another value could get the same `id`.
        self._seen: Final[dict[tuple[int, int], tuple[Json, Json]]] = {}

    def is_same(self, one: Json, other: Json, type_: Any) -> bool:
        return one is other or self._number_of(one, type_) == self._number_of(other, type_)

    def _number_of(self, value: Json, type_: Any) -> Json:
        seen = self._seen.get((id(value), id(type_)))
        return seen[1] if seen is not None else self._normalise(value, type_, self._numbered)

    def _numbered(self, value: Json, type_: Any, normal: Json) -> Json:
        number = None if normal is None else self._numbers.setdefault(_key_of(normal), len(self._numbers))
        if isinstance(value, dict | list):
            self._seen[id(value), id(type_)] = (value, number)
        return number


def normal_json(value: Json, type_: Any, made: Made) -> Json:
    """Return the value itself. Values without a known type have the same meaning if they are the same JSON."""
    normal = value
    if isinstance(value, dict):
        normal = {name: normal_json(inner, type_, made) for name, inner in value.items()}
    elif isinstance(value, list):
        normal = [normal_json(inner, type_, made) for inner in value]
    return made(value, type_, normal)


def _key_of(normal: Json) -> Hashable:
    """Return a key for a scalar, or for an object or list of numbers. Python treats 1 and True as equal."""
    if isinstance(normal, dict):
        return ("{", *sorted(normal.items()))
    return ("[", *normal) if isinstance(normal, list) else msgspec.json.encode(normal)
