"""Remembers the members whose change the server refused, so that one member does not take the turn of the others (P22).

A refused member waits, and the wait doubles with each refusal in a row. In the meantime, the plan changes other
members. Only the memory of this process has the waits. After a restart, each change is tried again at once.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.runtime.actions import Confirm, Create, ExpandClaim, Outcome, Rejected, Skipped, Unknown
from controller.runtime.result import is_final, is_outage
from informers.errors import Conflict
from informers.meta import ObjectKey

FIRST_WAIT: Final = timedelta(seconds=10)
LONGEST_WAIT: Final = timedelta(minutes=5)


class Refusal(Struct, frozen=True):
    """The last refusal of a member. `number` counts the refusals in a row. The next try is due at `until`."""

    number: int
    until: datetime
    message: str


class Refusals:
    def __init__(self) -> None:
        self._refused: dict[ObjectKey, dict[str, Refusal]] = {}

    def observe(self, key: ObjectKey, outcomes: Iterable[Outcome], now: datetime) -> None:
        refused = self._refused.pop(key, {})
        for outcome in outcomes:
            action = outcome.action
            if action.key == key or isinstance(outcome, Skipped) or isinstance(action, Create | Confirm):
                continue
            name = action.owner.name if isinstance(action, ExpandClaim) else action.key.name
            previous = refused.pop(name, None)
            if isinstance(outcome, Rejected | Unknown):
                refused |= {name: _next(previous, outcome, now)} if _is_refusal(outcome) else {}
        if refused:
            self._refused[key] = refused

    def waiting(self, key: ObjectKey, now: datetime) -> Mapping[str, Refusal]:
        """Return the refused members whose next try is not due yet, by name."""
        return {name: each for name, each in self._refused.get(key, {}).items() if each.until > now}

    def forget(self, key: ObjectKey) -> None:
        self._refused.pop(key, None)


def _is_refusal(outcome: Rejected | Unknown) -> bool:
    """Return True if the refusal concerns this member. A conflict or an outage says nothing about the member."""
    return not (isinstance(outcome.error, Conflict) or is_outage(outcome.error) or is_final(outcome))


def _next(previous: Refusal | None, outcome: Rejected | Unknown, now: datetime) -> Refusal:
    number = previous.number + 1 if previous is not None else 1
    doublings: int = 2 ** min(number - 1, 10)
    return Refusal(number, now + min(FIRST_WAIT * doublings, LONGEST_WAIT), outcome.message)
