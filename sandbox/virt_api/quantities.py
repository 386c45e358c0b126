"""This module writes quantities in the canonical form of Kubernetes, such as `1Gi` for `1024Mi`.

KubeVirt's mutating webhooks decode and encode each object. So the stored object has canonical forms.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from controller.apimachinery.quantities import parse_quantity

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SMALLEST_DECIMAL: Final = Fraction(1, 1000**3)


def canonical(value: Any) -> Any:
    """Return the canonical form of a quantity.

    A quantity with an exponent, or a value that is not a quantity, is returned unchanged.
    """
    amount = parse_quantity(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    text = str(value)
    if amount is None or "e" in text or "E" in text.rstrip("Ei"):
        return value
    if text.endswith("i") and amount.denominator == 1:
        return binary(int(amount))
    return _written(amount / _SMALLEST_DECIMAL, 1000, _DECIMAL)


def binary(amount: int) -> str:
    """Return a whole number with a binary suffix, such as `4Gi`."""
    return _written(Fraction(amount), 1024, _BINARY)


def _written(amount: Fraction, base: int, suffixes: tuple[str, ...]) -> str:
    """Return the amount with the largest possible suffix. The number before the suffix must be whole."""
    if not amount:
        return "0"
    position = 0
    while position + 1 < len(suffixes) and not amount % base:
        amount, position = amount / base, position + 1
    return f"{amount}{suffixes[position]}"
