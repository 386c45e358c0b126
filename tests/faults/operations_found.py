"""Sequences that found a bug. They stay as tests. Each sequence has only the operations that are necessary to show the
bug.
"""

from __future__ import annotations

from msgspec import Struct

from tests.faults.operations import ChangeOwners, Cut, Operation, Pause, Scale, Wait
from tests.faults.operations_world import KindName


class Found(Struct, frozen=True):
    """What was wrong, and the operations that showed it."""

    fault: str
    kind: KindName
    operations: tuple[Operation, ...]


FOUND: tuple[Found, ...] = (
    Found(
        fault="a set whose cache was older than the server deleted a VMI that a user had just detached",
        kind="sets",
        operations=(
            Cut(),
            ChangeOwners(0, "foreign"),
            Scale(4),
            Cut(),
            Scale(None),
            Pause(False),
            Cut(),
            Wait(0.7),
        ),
    ),
)
