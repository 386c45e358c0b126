"""An amount in the format of Kubernetes' `maxUnavailable`: a number, or a percentage of a total number."""

from __future__ import annotations

import re

from msgspec import Struct

_PERCENT = re.compile(r"([0-9]{1,3})%", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


class Amount(Struct, frozen=True):
    number: int
    percent: bool = False

    def of(self, whole: int) -> int:
        """Return the amount as a number. A percentage is a percentage of `whole`, and is rounded down.

        The result is at least 1, because a rollout with an amount of 0 would never make progress (P14).
        """
        return max(whole * self.number // 100 if self.percent else self.number, 1)


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
