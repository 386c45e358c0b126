"""The conditions that the controller sets in the same way for every kind (R11).

`ReplicaFailure` and `ReplicaPaused` are present while they are true, and absent otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.runtime.plan import AlreadyThere, Done, Missing, Outcome

REPLICA_FAILURE: Final = "ReplicaFailure"
REPLICA_PAUSED: Final = "ReplicaPaused"

PAUSED: Final = Condition(type=REPLICA_PAUSED, status="True", reason="Paused", message="Controller got paused")


def without_failures(current: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """The condition `ReplicaFailure` after a pass without a failure that sets it (R10). `current` is the condition
    before the pass.

    The condition is removed if all actions of the pass succeeded. It stays if an action did not succeed or was not
    tried. It also stays if the pass had no actions because it was not allowed to write.
    """
    if outcomes:
        all_succeeded = all(isinstance(outcome, Done | AlreadyThere | Missing) for outcome in outcomes)
        return None if all_succeeded else current
    return None if may_write else current


def without_failure(status: Any) -> object:
    """The status without the condition `ReplicaFailure`, to compare it with another status.

    The message of that condition may differ after each failure. Such a change must not wake the owner, because that
    would shorten the owner's backoff.
    """
    if status is None:
        return None
    others = tuple(condition for condition in status.conditions or () if condition.type != REPLICA_FAILURE)
    return replace(status, conditions=others)
