"""Conditions of a status: found, dated and merged.

The transition time of our own conditions changes when they appear, and never while they stay. Conditions of other types
belong to other writers and stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace


class Condition(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One entry of `status.conditions`, `status` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None


def find_condition(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    """The condition of this type, whatever it says."""
    for condition in conditions or ():
        if condition.type == type_:
            return condition
    return None


def find_true(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    """A condition that is there and true."""
    for condition in conditions or ():
        if condition.type == type_ and condition.status == "True":
            return condition
    return None


def merge_conditions(
    old: Iterable[Condition] | None, ours: Mapping[str, Condition | None], now: datetime
) -> tuple[Condition, ...] | None:
    """The whole list: foreign conditions as they were, then ours while true, dated when they appeared."""
    old = tuple(old or ())
    merged = [condition for condition in old if condition.type not in ours]
    for condition in ours.values():
        if condition is not None:
            before = find_true(old, condition.type)
            since = before.last_transition_time if before else now.replace(microsecond=0)
            probed = before.last_probe_time if before else since
            merged.append(replace(condition, last_probe_time=probed, last_transition_time=since))
    return tuple(merged) or None


def moment(time: datetime | None) -> datetime | None:
    """The time with its zone: whoever wrote a condition without one meant UTC, and the two kinds do not compare."""
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
