"""The names `<pool>-<ordinal>` of a pool's VMs, the ordinals that are free (P3), and the names of revisions (P11)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import count
from typing import Final

MOST_DIGITS: Final = 18
"""The maximum number of digits of an ordinal."""

_NAME = re.compile(r"(?P<pool>.+)-(?P<ordinal>0|[1-9][0-9]{0,17})", re.ASCII | re.DOTALL)
_REVISION_NAME = re.compile(r".+-[0-9]+(?:-[0-9a-f]{8})?", re.ASCII)
_OTHER_REVISION_NAME = re.compile(r".*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]+", re.ASCII)


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
    """Yield the ordinals whose VM names are not in `taken`. The sequence has no end.

    The smallest ordinals come first, so that new VMs fill gaps.
    """
    return (ordinal for ordinal in count() if name_of(pool, ordinal) not in taken)


def is_revision_name(name: str) -> bool:
    """Return True if a pool may give this name to a new revision.

    Such a name is `<pool>-<generation>`, with or without a part of a digest and a number.

    Names with a UID before the last number are left to KubeVirt. KubeVirt gives such names to the revisions of VMs and
    instance types.
    """
    return _REVISION_NAME.fullmatch(name) is not None and _OTHER_REVISION_NAME.fullmatch(name) is None
