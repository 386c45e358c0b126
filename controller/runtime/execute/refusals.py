"""Remembers the members whose change the server refused, so that one member does not take the turn of the others (P22).

A refused member waits, and the wait doubles with each refusal in a row. In the meantime, the plan changes other
members. Only the memory of this process has the waits. After a restart, each change is tried again at once.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec import Struct

from controller.runtime.actions import Confirm, Create, ExpandClaim, Outcome, Rejected, Skipped, Unknown
from controller.runtime.result import is_final, is_outage
from informers.errors import Conflict
from informers.meta import ObjectKey

FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 300.0


class Refusal(Struct, frozen=True):
    """The last refusal of a member. The next try is due at `until`."""

    until: datetime
    message: str


class _Refused(NamedTuple):
    """`number` counts the refusals in a row. The next try is due at `due`, on the clock of the loop."""

    number: int
    due: float
    message: str


class Refusals:
    def __init__(self) -> None:
        self._refused: dict[ObjectKey, dict[str, _Refused]] = {}

    def observe(self, key: ObjectKey, outcomes: Iterable[Outcome]) -> None:
        refused = self._refused.pop(key, {})
        for outcome in outcomes:
            action = outcome.action
            if action.key == key or isinstance(outcome, Skipped) or isinstance(action, Create | Confirm):
                continue
            name = action.owner.name if isinstance(action, ExpandClaim) else action.key.name
            previous = refused.pop(name, None)
            if isinstance(outcome, Rejected | Unknown):
                refused |= {name: _next(previous, outcome)} if _is_refusal(outcome) else {}
        if refused:
            self._refused[key] = refused

    def waiting(self, key: ObjectKey, now: datetime) -> Mapping[str, Refusal]:
        """Return the refused members whose next try is not due yet, by name. `now` is the time of the wall clock."""
        left = {name: (each.due - _now(), each.message) for name, each in self._refused.get(key, {}).items()}
        return {name: Refusal(now + timedelta(seconds=s), message) for name, (s, message) in left.items() if s > 0}

    def forget(self, key: ObjectKey) -> None:
        self._refused.pop(key, None)


def _is_refusal(outcome: Rejected | Unknown) -> bool:
    """Return True if the refusal concerns this member. A conflict or an outage says nothing about the member."""
    return not (isinstance(outcome.error, Conflict) or is_outage(outcome.error) or is_final(outcome))


def _next(previous: _Refused | None, outcome: Rejected | Unknown) -> _Refused:
    number = previous.number + 1 if previous is not None else 1
    doublings: int = 2 ** min(number - 1, 10)
    return _Refused(number, _now() + min(FIRST_WAIT_S * doublings, LONGEST_WAIT_S), outcome.message)


def _now() -> float:
    return asyncio.get_running_loop().time()
