"""The names `<pool>-<ordinal>` of a pool's VMs, and the ordinals that are free (P3)."""

import re
from collections.abc import Container, Iterator
from itertools import count
from typing import Final

MOST_DIGITS: Final = 18
"""The maximum number of digits of an ordinal."""

_NAME = re.compile(r"(?P<pool>.+)-(?P<ordinal>0|[1-9][0-9]{0,17})", re.ASCII | re.DOTALL)


def name_of(pool: str, ordinal: int) -> str:
    return f"{pool}-{ordinal}"


def parse_name(name: str) -> tuple[str, int] | None:
    """Return the pool's name and the ordinal in a VM's name, or None if the name has another form."""
    match = _NAME.fullmatch(name)
    return (match["pool"], int(match["ordinal"])) if match else None


def ordinal_of(name: str, pool: str) -> int | None:
    """Return the ordinal in a VM's name, or None if the name does not have the form `<pool>-<ordinal>`."""
    # A large pool calls this function very often, and a regular expression is slower.
    if not pool or not name.startswith(f"{pool}-"):
        return None
    digits = name[len(pool) + 1 :]
    is_number = digits.isdigit() and digits.isascii() and len(digits) <= MOST_DIGITS
    return int(digits) if is_number and (digits[0] != "0" or digits == "0") else None


def free_ordinals(pool: str, taken: Container[str]) -> Iterator[int]:
    """The sequence has no end. The smallest ordinals come first, so that new VMs fill gaps."""
    return (ordinal for ordinal in count() if name_of(pool, ordinal) not in taken)
