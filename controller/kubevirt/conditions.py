"""Conditions: found, dated and merged, the same way for every kind (R11).

`ReplicaFailure` and `ReplicaPaused` are present while true and absent otherwise; their transition time changes when
they appear, and never while they stay. Conditions of other types belong to somebody else and stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from controller.kubevirt.types import Condition
from controller.runtime.plan import AlreadyThere, Done, Missing, Outcome

REPLICA_FAILURE: Final = "ReplicaFailure"
REPLICA_PAUSED: Final = "ReplicaPaused"

PAUSED: Final = Condition(type=REPLICA_PAUSED, status="True", reason="Paused", message="Controller got paused")


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


def without_failures(held: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """`ReplicaFailure` after a pass in which nothing of note failed (R10): it goes when all of it went well.

    A pass that was not free to write proves nothing, nor does one that was cut short.
    """
    if outcomes:
        went_well = all(isinstance(outcome, Done | AlreadyThere | Missing) for outcome in outcomes)
        return None if went_well else held
    return None if may_write else held


def moment(time: datetime | None) -> datetime | None:
    """The time with its zone: whoever wrote a condition without one meant UTC, and the two kinds do not compare."""
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
