"""Sequences that found a bug. They stay as tests. Each sequence has only the operations that are necessary to show the
bug.
"""

from msgspec import Struct

from tests.faults.operations.changes import ChangeOwners, Cut, Operation, Wait, scale, set_spec
from tests.faults.operations.world import KindName


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
            scale(4),
            Cut(),
            scale(None),
            set_spec("paused", False),
            Cut(),
            Wait(0.7),
        ),
    ),
)
