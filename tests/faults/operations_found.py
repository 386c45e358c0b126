"""Sequences that found a fault. They stay as tests. Each was shrunk to the operations that the fault needs."""

from __future__ import annotations

from msgspec import Struct

from tests.faults.operations import Operation
from tests.faults.operations_world import KindName


class Found(Struct, frozen=True):
    """What was wrong, and the operations that showed it."""

    fault: str
    kind: KindName
    operations: tuple[Operation, ...]


FOUND: tuple[Found, ...] = ()
