"""What this process has written to VMs and VMIs, in memory. A policy or another controller may remove it.

Two marks limit the number of creates. They are remembered for half an hour, so an object without its mark still counts
with it: a VMI that replaces an early failure (R4a), and a standby (P32).

If this process sends the same patch to an object again and again, another writer reverts it. Then the patch counts as
refused (P22).
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from controller.kubevirt.annotations import DRAINING, PARTITION_STEP, RELEASED, ROLLED_BACK, STANDBY_STATE
from controller.kubevirt.standby import WOKEN, mark_in
from controller.runtime.actions import AlreadyThere, Create, Done, Outcome, Patch, ThreeWayMerge, Unknown
from informers.meta import ObjectKey, controller_of

NOTED_S: Final = 1800.0

REPEATED_S: Final = 600.0
"""A patch that follows an equal one within this time repeats it."""

ACCEPTED: Final = 3
"""After so many equal patches in a row, the next one waits."""

_VERSION: Final = re.compile(r'"resourceVersion":"[0-9]*"')
_TIME: Final = re.compile(r"[0-9-]{10}T[0-9:]{8}Z")
_TIMED: Final = (DRAINING, PARTITION_STEP, RELEASED, ROLLED_BACK)
"""The time in these annotations differs each time: that of a drain, a step, a return, and a row of releases."""


class Noted(NamedTuple):
    """`uid` is that of the object, or "" if it is not known."""

    note: str
    at: float
    uid: str = ""


class _Sent(NamedTuple):
    digest: int
    number: int
    at: float


class Written:
    """The function `clock` returns the seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._sent: OrderedDict[object, _Sent] = OrderedDict()
        self.notes: OrderedDict[ObjectKey, Noted] = OrderedDict()
        """The mark that each object of the last half hour must keep."""

    def note(self, outcome: Outcome) -> None:
        action = outcome.action
        if isinstance(action, Create) and isinstance(outcome, Done | AlreadyThere | Unknown):
            uid = outcome.uid if isinstance(outcome, Done) else ""
            self._keep(action.key, action.note or mark_in(action.body), uid)
        elif isinstance(action, Patch) and isinstance(outcome, Done) and STANDBY_STATE.encode() in action.body:
            mark = mark_in(action.body)
            self._keep(action.key, "" if mark.startswith(WOKEN) else mark, action.uid)

    def changed(self, old: Any, new: Any) -> None:
        """A cache shows another state of an object. A VM that has left its pool is no standby when it comes back."""
        if new is not None and controller_of(new.metadata) is None:
            noted = self.notes.get(new.metadata.key)
            if noted is not None and noted.uid:
                del self.notes[new.metadata.key]

    def _keep(self, key: ObjectKey, note: str, uid: str) -> None:
        self.notes.pop(key, None)
        if note:
            self.notes[key] = Noted(note, self._now(), uid)
            while next(iter(self.notes.values())).at + NOTED_S <= self._now():
                self.notes.popitem(last=False)

    def repeats(self, write: object, action: Patch | ThreeWayMerge, generation: int | None) -> int:
        """Count an accepted patch. `write` is its set or pool, its object and its fields, because another set may send
        others. Return how often it was sent without need.
        """
        last = self._sent.pop(write, None)
        digest = hash((action.uid, generation, _content(action)))
        is_equal = last is not None and last.digest == digest and last.at + REPEATED_S > self._now()
        number = last.number + 1 if last is not None and is_equal else 1
        self._sent[write] = _Sent(digest, number, self._now())
        while next(iter(self._sent.values())).at + REPEATED_S <= self._now():
            self._sent.popitem(last=False)
        return max(number + 1 - ACCEPTED, 0)


def _content(action: Patch | ThreeWayMerge) -> str | bytes:
    """Return what the patch writes, without what differs each time."""
    if isinstance(action, ThreeWayMerge):
        return action.new
    body = _VERSION.sub("", action.body.decode())
    return _TIME.sub("", body) if any(each in body for each in _TIMED) else body
