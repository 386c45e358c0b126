"""The steps of `vmherd.dev/partition`: which VMs keep their revision, and when the next step begins (P14).

`"3"` is one step: VMs with an ordinal below 3 keep their revision. `"90%,50%:10m,0"` has three steps. First the 10% of
the VMs with the highest ordinals are updated. When these are ready, 50% are updated. When these have been ready for ten
minutes, all are updated.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec import Struct

from controller.apimachinery.quantities import parse_duration
from controller.kubevirt.annotations import PARTITION, PARTITION_STEP
from controller.kubevirt.busy import time_of
from controller.replicas.wrong_annotations import setting
from informers.meta import ObjectMeta, annotations_of

ALL_ORDINALS: Final = 2**31
"""A partition above every ordinal. With this partition, no VM is updated."""


class PartitionStep(Struct, frozen=True):
    """VMs with an ordinal below `number` keep their revision. If `is_percent` is true, it is the share of VMs that keep
    their revision. The next step begins when the updated VMs have been ready for the time `pause`.
    """

    number: int
    is_percent: bool = False
    pause: timedelta = timedelta()

    def partition_of(
        self, ordinals: Sequence[int], outdated: Sequence[int], missing: int = 0, beside: Sequence[int] = ()
    ) -> int:
        """Return the partition in a pool with these ordinals, of which some are outdated, and with the lowest `missing`
        free ordinals. VMs that do not count have the ordinals in `beside`. All are in ascending order.

        A percentage is the share of all VMs that keep their revision, and VMs that are updated already do not keep it.
        It is rounded up, but one VM at least is updated, except with 100%.
        """
        if not self.is_percent:
            return self.number
        if self.number >= 100:
            return ALL_ORDINALS
        number = len(ordinals) + missing
        kept = min(-(-number * self.number // 100), number - 1, len(outdated) + missing)

        def kept_below(partition: int) -> int:
            free = partition - bisect_left(ordinals, partition) - bisect_left(beside, partition)
            return min(free, missing) + bisect_left(outdated, partition)

        return bisect_left(range(ALL_ORDINALS), kept, key=kept_below) if kept > 0 else 0


WRONG: Final = (PartitionStep(ALL_ORDINALS),)
"""The steps of a value that is not valid: all VMs keep their revision."""


def parse_partition(pool: ObjectMeta) -> tuple[PartitionStep, ...]:
    """Return the steps of the annotation, or none if there is no annotation. If its value is not valid, all VMs keep
    their revision.
    """
    if PARTITION not in annotations_of(pool):
        return ()
    text = setting(pool, PARTITION)
    return tuple(map(_parse_step, text.split(","))) if text is not None else WRONG


def _parse_step(text: str) -> PartitionStep:
    number, _, pause = text.strip().partition(":")
    return PartitionStep(int(number.rstrip("%")), number.endswith("%"), parse_duration(pause or "0") or timedelta())


def step_note(pool: ObjectMeta, digest: str, step: int, since: datetime | None = None) -> str:
    """Return the value of the annotation `PARTITION_STEP` for this step of the update to the template `digest`.

    `since` is the beginning of the pause after the step, or None if the pause has not begun.
    """
    note = f"{digest} {step} {annotations_of(pool).get(PARTITION)}"
    return note if since is None else f"{note} since {since.isoformat()}"


class NotedStep(NamedTuple):
    """The step that has begun, from 1, and the beginning of the pause after it, or None. `has_begun` is true if the
    update to the template has begun, perhaps with other steps.
    """

    step: int
    since: datetime | None = None
    has_begun: bool = False


def noted_step(pool: ObjectMeta, digest: str) -> NotedStep:
    """Return what the note says. A note about another template or other steps does not count."""
    text, _, since = annotations_of(pool).get(PARTITION_STEP, "").partition(" since ")
    found = re.fullmatch(r"(\w+) ([1-9][0-9]?) .*", text, re.ASCII | re.DOTALL)
    has_begun = found is not None and found[1] == digest
    step = int(found[2]) if found is not None else 1
    if text != step_note(pool, digest, step):
        return NotedStep(1, has_begun=has_begun)
    return NotedStep(min(step, len(parse_partition(pool))), time_of(since), has_begun)
