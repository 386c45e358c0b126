"""The conditions that the controller sets in the same way for every kind (R11).

The controller removes a condition from the status when the condition is no longer true. The controller never sets the
status of a condition to "False".
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.runtime.actions import AlreadyThere, Done, Missing, Outcome

REPLICA_FAILURE: Final = "ReplicaFailure"
REPLICA_PAUSED: Final = "ReplicaPaused"
REPLICA_BACK_OFF: Final = "ReplicaBackOff"
"""The condition of a set whose VMIs fail soon after they start. Replacements then wait (R4a)."""

RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
"""The conditions of kstatus. Many tools read them, see `kstatus`."""

_TEXTS_OF_FAILURES: Final = frozenset({REPLICA_FAILURE, RECONCILING, STALLED})

PAUSED: Final = Condition(type=REPLICA_PAUSED, status="True", reason="Paused", message="Controller got paused")


def without_failures(current: Condition | None, outcomes: tuple[Outcome, ...], *, may_write: bool) -> Condition | None:
    """Return the condition `ReplicaFailure` after a reconciliation that reports no new failure (R10). Return None if
    the condition is removed or absent.

    The argument `current` is the condition before the reconciliation. The condition is removed if all actions of the
    reconciliation succeeded. The condition stays if an action was not tried, or if its result is unknown. The condition
    also stays if the reconciliation was not allowed to write.
    """
    if outcomes:
        all_succeeded = all(isinstance(outcome, Done | AlreadyThere | Missing) for outcome in outcomes)
        return None if all_succeeded else current
    return None if may_write else current


def without_failure(status: Any) -> object:
    """Return the status without the texts about a failed write. Callers compare the result with another status.

    These texts may differ after each failure. They are in the condition `ReplicaFailure`, in the conditions of kstatus,
    and in the field `problem`. If a change of a text started a new reconciliation of the set or pool, the
    reconciliation would start before the end of the backoff.
    """
    if status is None:
        return None
    others = tuple(condition for condition in status.conditions or () if condition.type not in _TEXTS_OF_FAILURES)
    return replace(status, conditions=others, problem=None)
