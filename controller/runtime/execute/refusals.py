"""Remembers the members whose change the server refused, so that one member does not take the turn of the others (P22).

A refused member waits, and the wait doubles with each refusal in a row. In the meantime, the plan changes other
members. Only the memory of this process has the waits. After a restart, each change is tried again at once.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.runtime.actions import Confirm, Create, ExpandClaim, Outcome, Rejected, Skipped, Unknown
from controller.runtime.result import is_final, is_outage
from informers.errors import Conflict
from informers.meta import ObjectKey
from informers.ratelimit import ItemBackoff

FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 300.0


class Refusal(Struct, frozen=True):
    """The last refusal of a member. The next try is due at `until`."""

    until: datetime
    message: str


class Refusals:
    def __init__(self) -> None:
        self._backoff = ItemBackoff[tuple[ObjectKey, str]](initial_s=FIRST_WAIT_S, maximum_s=LONGEST_WAIT_S)
        self._refused: dict[ObjectKey, dict[str, tuple[float, str]]] = {}
        """For each refused member: when its next try is due, on the clock of the loop, and the message."""

    def observe(self, key: ObjectKey, outcomes: Iterable[Outcome]) -> None:
        refused = self._refused.setdefault(key, {})
        for outcome in outcomes:
            action = outcome.action
            if action.key == key or isinstance(outcome, Skipped) or isinstance(action, Create | Confirm):
                continue
            name = action.owner.name if isinstance(action, ExpandClaim) else action.key.name
            if isinstance(outcome, Rejected | Unknown) and _is_refusal(outcome):
                refused[name] = _now() + self._backoff.delay((key, name), _now()), outcome.message
            else:
                self._backoff.forget((key, name))
                refused.pop(name, None)
        if not refused:
            del self._refused[key]

    def waiting(self, key: ObjectKey, now: datetime) -> Mapping[str, Refusal]:
        """Return the refused members whose next try is not due yet, by name. `now` is the time of the wall clock."""
        left = {name: (due - _now(), message) for name, (due, message) in self._refused.get(key, {}).items()}
        return {name: Refusal(now + timedelta(seconds=s), message) for name, (s, message) in left.items() if s > 0}

    def forget(self, key: ObjectKey) -> None:
        for name in self._refused.pop(key, {}):
            self._backoff.forget((key, name))


def _is_refusal(outcome: Rejected | Unknown) -> bool:
    """Return True if the refusal concerns this member. A conflict or an outage says nothing about the member."""
    return not (isinstance(outcome.error, Conflict) or is_outage(outcome.error) or is_final(outcome))


def _now() -> float:
    return asyncio.get_running_loop().time()
