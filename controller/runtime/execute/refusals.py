"""The one clock of refused writes: a write that the server refused is not sent again before its wait is over (P22).

The wait doubles with each refusal in a row. Until then, a plan with the write gets the server's last answer without a
request, also for the status. A change of the spec ends the wait. So does the loss of a member for a create, once for
each member, because a quota may have room.

The clock, in memory only, is for one write, such as one annotation, and for all creates of one resource. Those of
standbys have another clock, so no wanted VM waits for them (P32). A patch that another writer reverts again and again
counts as refused (see `written`). So does a create if new members do not last (see `births`), and a delete of a member
that would wait for such a create.

An object other than a VM or VMI may be collected soon after its create, because of a deletion that the cache does not
show yet. Then its creates have a clock of their own: the second one is sent at once.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.standby import mark_in
from controller.runtime.actions import (
    Action,
    AlreadyThere,
    AnyResource,
    Cause,
    Check,
    Confirm,
    Create,
    Delete,
    Done,
    ExpandClaim,
    Missing,
    Outcome,
    Patch,
    Pause,
    Rejected,
    ThreeWayMerge,
    Unknown,
    label_of,
)
from controller.runtime.execute.births import Births, Owner
from controller.runtime.execute.written import Noted, Written
from controller.runtime.result import LONGEST_WAIT_OF_ERROR_S, is_final, is_outage
from controller.runtime.waits import FIRST_DELAY, LONGEST_DELAY, growing_delay
from informers.errors import AlreadyExists, Conflict, Invalid, ServerError, StatusError, Unauthorized
from informers.meta import ObjectKey
from informers.objects import PatchType

FIRST_WAIT_S: Final = FIRST_DELAY.total_seconds()
LONGEST_WAIT_S: Final = LONGEST_DELAY.total_seconds()

FIRST_WAIT_OF_ERROR_S: Final = 1.0
"""The first wait after an error of the server (see `LONGEST_WAIT_OF_ERROR_S`)."""

TOO_MANY: Final = (
    "new virtual machines go or leave again and again, soon after their creation, so the next one waits at most 5 "
    "minutes: see what changes or deletes them, or change the spec to try at once"
)

_FAILED_TEST: Final = "the server rejected our request due to an error in our request"
"""The API server's message if a test in a JSON patch fails. A policy answers with its own words."""


class Refusal(Struct, frozen=True):
    """The last refusal of a member. The next try is due at `until`."""

    until: datetime
    message: str


class _Write(NamedTuple):
    verb: str
    resource: AnyResource
    key: ObjectKey
    fields: tuple[str, ...] = ()


class _Series(NamedTuple):
    """Refusals in a row of one write. `due` is on the clock of the loop."""

    owner: Owner
    number: int
    due: float
    last: Rejected


class Refusals:
    """Remembers refused writes. The function `clock` returns the seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()) -> None:
        self._now = clock
        self._refused: dict[tuple[ObjectKey, str], dict[_Write, _Series]] = {}
        self._written, self.births = Written(clock), Births(clock)
        self._prune_at = float("-inf")

    def changed(self, old: Any, new: Any) -> None:
        """A cache of the members shows another state of an object, or None for none."""
        self.births.changed(old, new)
        self._written.changed(old, new)

    def replaced(self) -> None:
        """The cache was listed again."""

    @property
    def notes(self) -> Mapping[ObjectKey, Noted]:
        return self._written.notes

    def answers(self, owner: Owner, actions: Iterable[tuple[int, Action]]) -> dict[int, Rejected]:
        """Return the answers of the writes that are not sent, by their numbers."""
        numbered = list(actions)
        marks = (mark_in(each.body) for _, each in numbered if isinstance(each, Create))
        self.births.begin(owner, sum(map(bool, marks)))
        answers = {number: self.answer(owner, action) for number, action in numbered}
        return {number: each for number, each in answers.items() if each is not None}

    def answer(self, owner: Owner, action: Action) -> Rejected | None:
        answer = self._answer(owner, action)
        if answer is not None or action.resource not in (VMS, VMIS):
            return answer
        wait_s, is_told = 0.0, True
        if isinstance(action, Create):
            standby = bool(mark_in(action.body))
            wait_s = self.births.wait_s(owner, standby)
            is_told = not wait_s or self.births.is_told(owner, standby)
        elif isinstance(action, Delete) and action.successor:
            wait_s = self.births.pause_s(owner, bool(mark_in(action.successor)))
        if wait_s:
            return Rejected(action, Invalid(TOO_MANY, code=422), wait_s, is_repeated=is_told)
        if isinstance(action, Delete) and _ends_member(action):
            self.births.deletes(action.uid)
        return None

    def _answer(self, owner: Owner, action: Action) -> Rejected | None:
        refused = self._refused.get(owner[:2])
        if not refused or isinstance(action, Check):
            return None
        write = _write_of(action)
        found, gone = refused.get(write), refused.get(write._replace(key=action.key))
        if gone is not found and gone is not None and self._waits(gone, owner):
            return self._repeated(gone, action)
        if found is None or not self._waits(found, owner):
            return None
        if owner.members > found.owner.members:
            refused[write] = found._replace(owner=owner)  # creates before the refusal have succeeded
        elif isinstance(action, Create) and owner.members < found.owner.members and not is_final(found.last):
            return None
        return self._repeated(found, action)

    def _repeated(self, series: _Series, action: Action) -> Rejected:
        return replace(series.last, action=action, wait_s=series.due - self._now(), is_repeated=True)

    def timed(self, owner: Owner, outcome: Outcome) -> Outcome:
        """Return the outcome with its wait if the write was refused, not by a conflict or an outage."""
        action = outcome.action
        if isinstance(outcome, Done | AlreadyThere | Missing):
            self._forget(owner, action)
        self._written.note(outcome)
        if isinstance(outcome, Done) and isinstance(action, Confirm):
            self.births.in_doubt.discard(owner.uid)
        if isinstance(outcome, Done) and isinstance(action, Create) and action.resource in (VMS, VMIS):
            self.births.made(owner, outcome.uid, bool(mark_in(action.body)))
        # A delete that was sent twice conflicts with itself.
        if isinstance(outcome, Rejected) and isinstance(action, Delete) and type(outcome.error) is not Conflict:
            self.births.kept(action.uid)
        if isinstance(outcome, Done) and isinstance(action, Patch | ThreeWayMerge):
            self._bound(owner, action)
        if isinstance(outcome, Done) and isinstance(action, Create) and action.resource not in (VMS, VMIS):
            error = StatusError(f"{action.resource.kind} {action.key.name} was created and is gone again", code=404)
            self._lengthen(
                owner, _write_of(action)._replace(key=action.key), Rejected(action, error), unless_first=True
            )
        if isinstance(action, Check) or not isinstance(outcome, Rejected | Unknown) or not _is_refusal(outcome):
            return outcome
        last = outcome if isinstance(outcome, Rejected) else Rejected(action, outcome.error)
        return replace(outcome, wait_s=self._lengthen(owner, _write_of(action), last))

    def _bound(self, owner: Owner, action: Patch | ThreeWayMerge) -> None:
        """Begin a wait if the same patch was sent too often."""
        write = _write_of(action)
        number = self._written.repeats((owner.uid, write), action, owner.generation)
        if number:
            what = ", ".join(each for each in write.fields if each not in ("uid", "resourceVersion")) or "its template"
            error = Invalid(f"another writer or a policy changes {action.key.name} back: {what}", code=422)
            wait_s = growing_delay(number, FIRST_WAIT_S, LONGEST_WAIT_S)
            series = _Series(owner, number, self._now() + wait_s, Rejected(action, error))
            self._refused.setdefault(owner[:2], {})[write] = series

    def _lengthen(self, owner: Owner, write: _Write, last: Rejected, *, unless_first: bool = False) -> float:
        """Begin or continue the series of a write, and return the wait in seconds."""
        self._prune()
        refused = self._refused.setdefault(owner[:2], {})
        before = refused.get(write)
        number = before.number + 1 if before is not None and before.owner.generation == owner.generation else 0
        first_s, longest_s = FIRST_WAIT_S, LONGEST_WAIT_S
        if isinstance(last.error, ServerError):
            first_s, longest_s = FIRST_WAIT_OF_ERROR_S, LONGEST_WAIT_OF_ERROR_S
        wait_s = LONGEST_WAIT_S if is_final(last) else growing_delay(number + 1, first_s, longest_s)
        wait_s = 0.0 if unless_first and number == 0 else wait_s
        refused[write] = _Series(owner, number, self._now() + wait_s, last)
        return wait_s

    def waiting(self, owner: Owner, resources: Collection[AnyResource], now: datetime) -> Mapping[str, Refusal]:
        """Return the members of these resources of which a change waits, by name. `now` is the wall clock."""
        found: dict[str, Refusal] = {}
        for write, series in self._refused.get(owner[:2], {}).items():
            action = series.last.action
            if isinstance(action, Create) or not self._waits(series, owner):
                continue
            name = action.owner.name if isinstance(action, ExpandClaim) else write.key.name
            until = now + timedelta(seconds=series.due - self._now())
            if (isinstance(action, ExpandClaim) or write.resource in resources) and (
                name not in found or found[name].until < until
            ):
                found[name] = Refusal(until, series.last.message)
        return found

    def _forget(self, owner: Owner, action: Action) -> None:
        """Forget the series of a write that succeeded, and all series of an object that was deleted."""
        refused = self._refused.get(owner[:2])
        if not refused:
            return
        refused.pop(_write_of(action), None)
        if isinstance(action, Delete):
            for each in [each for each in refused if each[1:3] == (action.resource, action.key)]:
                del refused[each]

    def _waits(self, series: _Series, owner: Owner) -> bool:
        return series.due > self._now() and series.owner.generation == owner.generation

    def _prune(self) -> None:
        """Forget each series whose next try has been due for the longest wait. Look for them once in this time."""
        if self._now() < self._prune_at:
            return
        self._prune_at = self._now() + LONGEST_WAIT_S
        self.births.forget_calm()
        for owner, refused in list(self._refused.items()):
            for write in [write for write, each in refused.items() if each.due + LONGEST_WAIT_S <= self._now()]:
                del refused[write]
            if not refused:
                del self._refused[owner]


def _ends_member(delete: Delete) -> bool:
    """Return True if a member goes for another reason than that its work is done."""
    return delete.resource in (VMS, VMIS) and delete.member is None and delete.cause is not Cause.FINISHED


def _write_of(action: Action) -> _Write:
    key = ObjectKey(action.key.namespace, "") if isinstance(action, Create) else action.key
    fields = tuple(sorted(set(_fields(action)))) if isinstance(action, Patch) else ()
    fields = (action.subresource,) if isinstance(action, Pause) else fields
    fields = ("standby",) if isinstance(action, Create) and mark_in(action.body) else fields
    return _Write(label_of(type(action)), action.resource, key, fields)


def _fields(patch: Patch) -> Iterator[str]:
    body: Any = msgspec.json.decode(patch.body)
    if patch.type is PatchType.JSON:
        yield from (step["path"] for step in body if step["op"] != "test")
        return
    for name, value in body.get("metadata", {}).items():
        yield from value if isinstance(value, dict) else (name,)
    yield from body.keys() - {"metadata"}


def _is_refusal(outcome: Rejected | Unknown) -> bool:
    """Return True if the server does not want this write. A lost race or an outage says nothing about the write."""
    error = outcome.error
    is_race = isinstance(error, Conflict | AlreadyExists) or (
        isinstance(error, Invalid) and str(error).startswith(_FAILED_TEST)
    )
    return not (is_race or isinstance(error, Unauthorized) or is_outage(error))
