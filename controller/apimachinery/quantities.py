"""Parses quantities as Kubernetes does, so that they can be compared by value.

For example, `1024Mi` equals `1Gi`, and `1000m` equals `1`.

Source: `k8s.io/apimachinery/pkg/api/resource`, ParseQuantity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Final

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
    """Return the value of a quantity, or None if the text is not a quantity.

    As in Kubernetes, a value that is not a multiple of one billionth is rounded away from zero.
    """
    syntax = _SYNTAX.fullmatch(str(value))
    if syntax is None:
        return None
    suffix = syntax["suffix"]
    factor = _FACTORS.get(suffix) or Fraction(10) ** int(suffix[1:])
    exact = Fraction(syntax["number"]) * factor
    rounded = Fraction(ceil(abs(exact) * _NANO), _NANO)
    capped = min(rounded, Fraction(LARGEST))
    return -capped if exact < 0 else capped
