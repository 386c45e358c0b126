"""The conditions that the controller sets in the same way for every kind (R11).

The controller removes a condition from the status when the condition is no longer true. Only `Available` and
`Progressing` are always there, with another status, as on Deployments.
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true
from controller.runtime.actions import AlreadyThere, Cause, Done, Missing, Notice, Outcome

REPLICA_FAILURE: Final = "ReplicaFailure"
REPLICA_PAUSED: Final = "ReplicaPaused"
REPLICA_BACK_OFF: Final = "ReplicaBackOff"
"""The condition of a set whose VMIs fail soon after they start. Replacements then wait (R4a)."""

RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
"""The conditions of kstatus. Many tools read them, see `kstatus`."""

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
"""The conditions of Deployments."""

DEADLINE: Final = "ProgressDeadlineExceeded"
"""The reason of `Stalled` if a VM or a write has exceeded the progress deadline."""

_TEXTS_OF_FAILURES: Final = frozenset({REPLICA_FAILURE, RECONCILING, STALLED})


def replica_failure(
    snapshot: Any, outcomes: tuple[Outcome, ...], cause_of: Callable[[Outcome], tuple[str, str] | None], *, valid: bool
) -> Condition | None:
    """Return the condition `ReplicaFailure` after these outcomes, or None (R10, P17). It tells of the first failure.
    `cause_of` returns the reason and the message of a failure, and None for other outcomes.

    Without a failure, the present condition is removed if all actions succeeded. It stays if an action was not tried,
    its result is unknown, or the reconciliation was not allowed to write. `valid` is true for a valid spec.
    """
    owner = snapshot.owner
    for cause in filter(None, map(cause_of, outcomes)):
        return Condition(type=REPLICA_FAILURE, status="True", reason=cause[0], message=cause[1])
    may_write = snapshot.settled and valid and not owner.spec.paused and owner.metadata.deletion_timestamp is None
    succeeded = [isinstance(outcome, Done | AlreadyThere | Missing) for outcome in outcomes]
    return None if (all(succeeded) if outcomes else may_write) else true_condition(owner.status, REPLICA_FAILURE)


def true_condition(status: Any, type_: str) -> Condition | None:
    """Return the condition of this type if it is true. The status may be None."""
    return find_true(status.conditions if status is not None else None, type_)


def transitions(old: Any, new: Any, *, paused: Notice, resumed: Notice) -> tuple[Notice, ...]:
    """Return the notices about a pause or its end (R8, P17) and a missed deadline. Other stalls have own Events."""
    was_paused, is_paused = (true_condition(status, REPLICA_PAUSED) is not None for status in (old, new))
    notices = () if was_paused == is_paused else (paused if is_paused else resumed,)
    was_late, is_late = (true_condition(status, STALLED) for status in (old, new))
    if is_late is None or is_late.reason != DEADLINE or (was_late is not None and was_late.reason == DEADLINE):
        return notices
    return (*notices, Notice(reason=DEADLINE, message=is_late.message or ""))


def held_reason(cause: Cause) -> str:
    """Return the reason of the Event about a delete with this cause that waits."""
    return "HealingHeld" if cause in (Cause.HEALING, Cause.FINISHED) else "UpdateHeld"


def without_failure(status: Any) -> object:
    """Return the status without the texts about a failed write, which may differ after each failure. If such a change
    started a reconciliation, it would start before the end of the backoff.
    """
    if status is None:
        return None
    others = tuple(condition for condition in status.conditions or () if condition.type not in _TEXTS_OF_FAILURES)
    return replace(status, conditions=others, problem=None)


def counted(number: int, one: str, many: str) -> str:
    """Return a number with the words after it, `one` or `many`."""
    return f"{number} {one if number == 1 else many}"


def machines_wait(number: int, more: str = "") -> str:
    """Return the beginning of a sentence, such as `2 virtual machines wait`. `more` comes before the noun."""
    return counted(number, f"{more}virtual machine waits", f"{more}virtual machines wait")
