"""The names of a pool's VMs, `<pool>-<ordinal>`, and the ordinals that are free (P3)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import count

_NAME = re.compile(r"(?P<pool>.+)-(?P<ordinal>0|[1-9][0-9]{0,17})", re.ASCII | re.DOTALL)


def name_of(pool: str, ordinal: int) -> str:
    return f"{pool}-{ordinal}"


def parse_name(name: str) -> tuple[str, int] | None:
    """The pool's name and the ordinal in a VM's name; None if no pool gives such a name."""
    match = _NAME.fullmatch(name)
    return (match["pool"], int(match["ordinal"])) if match else None


def ordinal_of(name: str, pool: str) -> int | None:
    """The ordinal in a VM's name; None if the pool `pool` does not give such a name."""
    parsed = parse_name(name)
    return parsed[1] if parsed is not None and parsed[0] == pool else None


def free_ordinals(pool: str, taken: Container[str]) -> Iterator[int]:
    """The ordinals whose names are not in `taken`, smallest first, so that gaps are filled. The iterator never ends."""
    return (ordinal for ordinal in count() if name_of(pool, ordinal) not in taken)
