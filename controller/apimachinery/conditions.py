"""Functions that find, date and merge the conditions of a status.

The transition time of our own condition is the time when the condition appeared. It does not change while the condition
stays. Conditions of other types belong to other writers and are not changed.
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
    """The condition of this type, with any status; None if there is none."""
    for condition in conditions or ():
        if condition.type == type_:
            return condition
    return None


def find_true(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    """The condition of this type with status "True"; None if there is none."""
    for condition in conditions or ():
        if condition.type == type_ and condition.status == "True":
            return condition
    return None


def merge_conditions(
    old: Iterable[Condition] | None, ours: Mapping[str, Condition | None], now: datetime
) -> tuple[Condition, ...] | None:
    """The complete list of conditions: first the conditions of other writers, unchanged, then our own ones that are
    true.

    `ours` maps the type of each of our conditions to the condition, or to None if it is not true now.
    """
    old = tuple(old or ())
    merged = [condition for condition in old if condition.type not in ours]
    for condition in ours.values():
        if condition is not None:
            before = find_true(old, condition.type)
            since = before.last_transition_time if before else now.replace(microsecond=0)
            probed = before.last_probe_time if before else since
            merged.append(replace(condition, last_probe_time=probed, last_transition_time=since))
    return tuple(merged) or None


def with_timezone(time: datetime | None) -> datetime | None:
    """The time with a time zone. A time without one is UTC. Python cannot compare the two kinds of time."""
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
