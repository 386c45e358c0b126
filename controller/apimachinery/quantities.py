"""Parses quantities, amounts and durations as Kubernetes does (`k8s.io/apimachinery/pkg/api/resource`).

Quantities can be compared by value: `1024Mi` equals `1Gi`, and `1000m` equals `1`.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from math import ceil
from typing import Final

from msgspec import Struct

LARGEST: Final = 2**63 - 1
"""The largest value of a quantity. Like Kubernetes, the parser replaces a larger value by this value."""

_NANO: Final = 10**9
_SYNTAX: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}))"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3}|)",
    re.ASCII,
)
_FACTORS: Final[Mapping[str, Fraction]] = {
    **{name: Fraction(1024) ** (power + 1) for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
    **{name: Fraction(1000) ** power for power, name in enumerate("num", start=-3)},
    **{name: Fraction(1000) ** power for power, name in enumerate(("", "k", "M", "G", "T", "P", "E"))},
}


def parse_quantity(value: str | int | float) -> Fraction | None:
    """As in Kubernetes, a value that is not a multiple of one billionth is rounded away from zero."""
    syntax = _SYNTAX.fullmatch(str(value))
    if syntax is None:
        return None
    suffix = syntax["suffix"]
    factor = _FACTORS.get(suffix) or Fraction(10) ** int(suffix[1:])
    exact = Fraction(syntax["number"]) * factor
    rounded = Fraction(ceil(abs(exact) * _NANO), _NANO)
    capped = min(rounded, Fraction(LARGEST))
    return -capped if exact < 0 else capped


_PERCENT = re.compile(r"([0-9]{1,3})%", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


class Amount(Struct, frozen=True):
    number: int
    percent: bool = False

    def of(self, whole: int) -> int:
        """Return the amount, with a percentage of `whole` rounded down, at least 1: 0 makes no progress (P14)."""
        return max(self.floor(whole), 1)

    def floor(self, whole: int) -> int:
        """Return the amount as a number. A percentage is rounded down, and may be 0."""
        return whole * self.number // 100 if self.percent else self.number

    def ceiling(self, whole: int) -> int:
        return ceil(Fraction(whole * self.number, 100)) if self.percent else self.number


def parse_amount(value: int | str) -> Amount | None:
    """Parse a number of at least 1, or a percentage from "1%" to "100%". Return None for all other values."""
    if isinstance(value, int):
        return Amount(value) if value >= 1 and not isinstance(value, bool) else None
    if found := _PERCENT.fullmatch(value):
        number = int(found[1])
        return Amount(number, percent=True) if 1 <= number <= 100 else None
    if _NUMBER.fullmatch(value) and int(value) >= 1:
        return Amount(int(value))
    return None


_PART = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_MICROSECONDS = {"ns": 1e-3, "us": 1.0, "\u00b5s": 1.0, "\u03bcs": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}
_LONGEST = timedelta(days=36525)
_MOST_CHARACTERS = 100


def seconds(number: int) -> timedelta:
    """Return a number of seconds as a duration between 0 and 100 years. Other programs write any number."""
    return timedelta(seconds=min(max(number, 0), _LONGEST // timedelta(seconds=1)))


def parse_duration(text: str) -> timedelta | None:
    """Return the duration, or None if it is not between 0 and 100 years, or if the text has over 100 characters."""
    unsigned = text.removeprefix("+")
    if unsigned == "0":
        return timedelta()
    parts = _PART.findall(unsigned) if len(unsigned) <= _MOST_CHARACTERS else []
    if not parts or "".join(number + unit for number, unit in parts) != unsigned:
        return None
    microseconds = sum(float(number) * _MICROSECONDS[unit] for number, unit in parts)
    return timedelta(microseconds=microseconds) if microseconds <= _LONGEST / timedelta(microseconds=1) else None
