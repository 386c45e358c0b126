"""The names of a pool's VMs: `<pool>-<ordinal>`, and which ordinals are free (P3)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import count

_NAME = re.compile(r"(?P<pool>.+)-(?P<ordinal>0|[1-9][0-9]{0,17})", re.ASCII | re.DOTALL)


def name_of(pool: str, ordinal: int) -> str:
    return f"{pool}-{ordinal}"


def parse_name(name: str) -> tuple[str, int] | None:
    """The pool and the ordinal in a VM's name; None for a name that no pool gives."""
    found = _NAME.fullmatch(name)
    return (found["pool"], int(found["ordinal"])) if found else None


def ordinal_of(name: str, pool: str) -> int | None:
    """The ordinal of this pool's VM of that name; None for a name that it does not give."""
    parsed = parse_name(name)
    return parsed[1] if parsed is not None and parsed[0] == pool else None


def free_ordinals(pool: str, taken: Container[str]) -> Iterator[int]:
    """The ordinals whose names nobody has, smallest first, so that gaps are filled. Without end."""
    return (ordinal for ordinal in count() if name_of(pool, ordinal) not in taken)
