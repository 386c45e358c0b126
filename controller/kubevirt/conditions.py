"""The conditions that this controller sets, the same way for every kind (R11).

`ReplicaFailure` and `ReplicaPaused` are present while true and absent otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.runtime.plan import AlreadyThere, Done, Missing, Outcome

REPLICA_FAILURE: Final = "ReplicaFailure"
REPLICA_PAUSED: Final = "ReplicaPaused"

PAUSED: Final = Condition(type=REPLICA_PAUSED, status="True", reason="Paused", message="Controller got paused")


def without_failures(held: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """`ReplicaFailure` after a pass in which nothing of note failed (R10): it goes when all of it went well.

    A pass that was not free to write proves nothing, nor does one that was cut short.
    """
    if outcomes:
        went_well = all(isinstance(outcome, Done | AlreadyThere | Missing) for outcome in outcomes)
        return None if went_well else held
    return None if may_write else held


def without_failure(status: Any) -> object:
    """The status without `ReplicaFailure`, to compare with another. The message of that condition may differ after each
    failure, and a change of nothing else must not wake an owner: that would cut its backoff short.
    """
    if status is None:
        return None
    others = tuple(condition for condition in status.conditions or () if condition.type != REPLICA_FAILURE)
    return replace(status, conditions=others)
