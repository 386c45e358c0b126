"""How many VMs or VMIs a set or pool may create in a row (R4b).

New members may go again and again. Failures (R4a), releases (R2) and refused writes have limits of their own. This is
the limit for all other causes: a policy or another controller makes each new member look outdated, starts each standby,
or removes its owner or our notes.

A set or pool may create twice as many members as it wants, and a few more, at once. As many as it wants are added each
minute, and with each change of the spec. If none is left, a round of as many begins after a delay, which grows with
each round, until no member was missing for a minute. Standbys have a count of their own, so no wanted member waits for
them.

Members that others delete do not count, nor do VMs that are claimed, or deleted because they have finished. A member
that leaves alive, without its owner or its labels, counts only in its first minute: a user takes old ones out, and a
policy new ones.

If others delete a member as soon as it is created, its owner is in doubt: it may not exist any more, and the garbage
collector works before the cache shows it. Then the next plan confirms the owner first.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from controller.kubevirt.standby import has_standby_mark
from controller.runtime.waits import FIRST_DELAY, LONGEST_DELAY, growing_delay
from informers.meta import ObjectKey, ObjectMeta, controller_of, is_controlled_by

ROUNDS: Final = 2
MORE: Final = 6
CALM_S: Final = 60.0
DOUBT_S: Final = 5.0
GOING_S: Final = 3600.0
"""A deleted member is gone by then. If not, it counts as deleted by others."""

MOST: Final = 10_000
"""A set or pool that wants more counts like one that wants so many."""


class Owner(NamedTuple):
    """The set or pool of a plan. `members` is the number of its members when the plan was made, `wanted` the number in
    its spec, and `claimed` that of the VMs that have left it for others (P33).
    """

    key: ObjectKey
    uid: str
    generation: int | None = 0
    members: int = 0
    wanted: int = MOST
    claimed: int = 0


class _Row(NamedTuple):
    """`left` members may be created at the time `at`. After that, the next round begins at `due`: the `number`-th.
    The round `told` is the last one that an Event has reported.
    """

    generation: int | None
    claimed: int
    left: float
    at: float
    number: int = 0
    due: float = 0.0
    told: int = -1


class Births:
    """The function `clock` returns the seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._rows: dict[tuple[str, bool], _Row] = {}
        """The rows by the UID of the set or pool, and whether it is that of its standbys."""
        self._young: OrderedDict[str, float] = OrderedDict()
        """When this process has created each member of the last minute, by UID."""
        self._ours: OrderedDict[str, float] = OrderedDict()
        """When this process has deleted each member that is not gone yet, by UID."""
        self._asked: dict[tuple[str, bool], int] = {}
        """The number of creates that have got an answer since the last `begin`."""
        self._standbys: dict[str, int] = {}
        """The most standbys that one plan of a pool creates. Their number may be larger than that of the wanted VMs."""
        self.in_doubt: set[str] = set()
        """The UIDs of the sets and pools to confirm."""

    def begin(self, owner: Owner, standbys: int) -> None:
        """The creates of a plan follow, for which `wait_s` is asked one after the other: so many are of standbys."""
        for each in (True, False):
            self._asked.pop((owner.uid, each), None)
        if standbys > self._standbys.get(owner.uid, 0):
            self._standbys[owner.uid] = standbys

    def wait_s(self, owner: Owner, standby: bool = False) -> float:
        """Return the seconds that the next create has to wait, or 0."""
        now, key, row = self._now(), (owner.uid, standby), self._row(owner, standby)
        asked = self._asked[key] = self._asked.get(key, 0) + 1
        if row.left < 1 and row.due <= now:
            number, left = row.number + 1, float(self._wanted(owner, standby)) if row.number else 0.0
            delay = growing_delay(number, FIRST_DELAY, LONGEST_DELAY).total_seconds()
            row = row._replace(number=number, left=left, due=now + delay)
        self._rows[key] = row
        return 0.0 if row.left >= asked else max(row.due - now, FIRST_DELAY.total_seconds())

    def _wanted(self, owner: Owner, standby: bool) -> int:
        return min(max(owner.wanted, self._standbys.get(owner.uid, 0) if standby else 0, 1), MOST)

    def is_told(self, owner: Owner, standby: bool) -> bool:
        """Return True if the wait for the next round was reported before. From now on, it was."""
        row = self._row(owner, standby)
        self._rows[owner.uid, standby] = row._replace(told=row.number)
        return row.told == row.number

    def pause_s(self, owner: Owner, standby: bool) -> float:
        """Return the seconds until the next round if no member may be created before, or 0."""
        row = self._row(owner, standby)
        return max(row.due - self._now(), 0.0) if row.left < 1 else 0.0

    def made(self, owner: Owner, uid: str, standby: bool = False) -> None:
        self._count(self._row(owner, standby), (owner.uid, standby), uid)

    def _count(self, row: _Row, key: tuple[str, bool], uid: str) -> None:
        """Count a member that this process has created, once."""
        if uid not in self._young:
            self._remember(self._young, uid, CALM_S)
            self._rows[key] = row._replace(left=max(row.left - 1, 0.0))

    def deletes(self, uid: str) -> None:
        """A delete follows. The cache may show it before the answer comes."""
        self._remember(self._ours, uid, GOING_S)

    def kept(self, uid: str) -> None:
        """The delete has not happened."""
        self._ours.pop(uid, None)

    def _remember(self, times: OrderedDict[str, float], uid: str, for_s: float) -> None:
        times[uid] = self._now()
        while next(iter(times.values())) + for_s <= self._now():
            times.popitem(last=False)

    def changed(self, old: Any, new: Any) -> None:
        """A cache shows another state of a VM or VMI. A new one counts, also if the answer to its create was lost. One
        that others have deleted may come back.
        """
        is_other = old is None or new is None or old.metadata.uid != new.metadata.uid
        if old is not None:
            self._left(old.metadata, None if is_other else new.metadata)
        if new is not None and is_other:
            key = _key_of(new.metadata)
            if (row := self._rows.get(key)) is not None:
                self._count(row, key, new.metadata.uid)

    def _left(self, old: ObjectMeta, new: ObjectMeta | None) -> None:
        key = _key_of(old)
        if (row := self._rows.get(key)) is None:
            return
        is_back, age_s = False, self._now() - self._young.get(old.uid, float("-inf"))
        if new is None:
            is_back = self._ours.pop(old.uid, None) is None
            if age_s < DOUBT_S:
                self.in_doubt.add(key[0])
        elif not is_controlled_by(new, key[0]):
            is_back = age_s >= CALM_S
        self._rows[key] = row._replace(left=row.left + is_back)

    def forget_calm(self) -> None:
        """Forget the sets and pools that have created nothing for so long that nothing is to be remembered."""
        old = [each for each, row in self._rows.items() if max(row.at, row.due) + 60 * (ROUNDS + MORE) < self._now()]
        for each in old:
            del self._rows[each]
        uids = {uid for uid, _ in self._rows}
        self.in_doubt &= uids
        self._standbys = {uid: number for uid, number in self._standbys.items() if uid in uids}
        self._asked = {key: number for key, number in self._asked.items() if key in self._rows}

    def _row(self, owner: Owner, standby: bool) -> _Row:
        now, row, wanted = self._now(), self._rows.get((owner.uid, standby)), self._wanted(owner, standby)
        most = float(ROUNDS * wanted + MORE)
        if row is None or (row.number and row.due + CALM_S < now):
            return _Row(owner.generation, owner.claimed, most, now)
        added = max(owner.claimed - row.claimed, 0) + (wanted if row.generation != owner.generation else 0.0)
        added += 0.0 if row.number else (now - row.at) * wanted / 60
        left = min(row.left + added, most)
        return row._replace(generation=owner.generation, claimed=owner.claimed, left=left, at=now)


def _key_of(member: ObjectMeta) -> tuple[str, bool]:
    owner = controller_of(member)
    return (owner.uid, has_standby_mark(member)) if owner is not None else ("", False)
