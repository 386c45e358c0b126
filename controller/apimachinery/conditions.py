"""Functions that find and merge the conditions of a status and set their times.

The transition time of a condition is the time at which vmherd gave the condition its status. This time does not change
while the status stays. The conditions of other writers are not changed.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

EARLIEST: Final = datetime(1000, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""The first and the last time with which plans calculate. All durations are shorter than the rest of the calendar."""


class Condition(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One entry of `status.conditions`. The field `status` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None
    observed_generation: int | None = None


def with_shared_texts(condition: Condition) -> Condition:
    """Return the condition with texts that all equal texts share, to save memory in a cache."""
    return Condition(
        type=intern(condition.type),
        status=intern(condition.status),
        reason=condition.reason and intern(condition.reason),
        message=condition.message and intern(condition.message),
        last_probe_time=condition.last_probe_time,
        last_transition_time=condition.last_transition_time,
        observed_generation=condition.observed_generation,
    )


def find_condition(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    for condition in conditions or ():
        if condition.type == type_:
            return condition
    return None


def find_true(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    for condition in conditions or ():
        if condition.type == type_ and condition.status == "True":
            return condition
    return None


def merge_conditions(
    old: Iterable[Condition] | None, ours: Mapping[str, Condition | None], now: datetime
) -> tuple[Condition, ...] | None:
    """Return the conditions of other writers, unchanged, and those of vmherd: `ours`, by type, or None."""
    old = tuple(old or ())
    merged = [condition for condition in old if condition.type not in ours]
    for condition in ours.values():
        if condition is not None:
            before = find_condition(old, condition.type)
            before = before if before is not None and before.status == condition.status else None
            since = before.last_transition_time if before else now.replace(microsecond=0)
            probed = before.last_probe_time if before else since
            merged.append(replace(condition, last_probe_time=probed, last_transition_time=since))
    return tuple(merged) or None


def with_timezone(time: datetime | None) -> datetime | None:
    """Return a time for plans: in UTC by default, and between `EARLIEST` and `LATEST`."""
    if time is not None and not EARLIEST.year <= time.year < LATEST.year:
        return EARLIEST if time.year < EARLIEST.year else LATEST
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def time_text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
