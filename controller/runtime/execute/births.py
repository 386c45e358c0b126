"""How many VMs or VMIs a set or pool may create in a row (R4b).

New members may go again and again. Failures (R4a), releases (R2) and refused writes have limits of their own. This is
the limit for all other causes. For example, a policy or another controller makes each new member look outdated, starts
each standby, or removes its owner or our notes.

A set or pool may create twice as many members as it wants, and a few more, at once. As many as it wants are added each
minute, and with each change of the spec. If none is left, a round begins after a delay: as many as wanted may be
created. The delay grows with each round. It ends when no member was missing for a minute.

Members that others delete do not count. VMs that are claimed, or that are deleted because they have finished, do not
count either. A member that leaves alive, without its owner or its labels, counts only in its first minute: a user takes
old ones out, and a policy new ones.

If others delete a member as soon as it is created, its owner is in doubt: the garbage collector may have done it,
because the owner does not exist any more, and the cache does not show it. Then the next plan confirms the owner first.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from controller.runtime.waits import FIRST_DELAY, LONGEST_DELAY, growing_delay
from informers.meta import ObjectKey, controller_of, is_controlled_by

ROUNDS: Final = 2
MORE: Final = 6
CALM_S: Final = 60.0
DOUBT_S: Final = 5.0
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
    `ours` are those that vmherd has deleted, and that are not gone yet. The round `told` is the last one that an Event
    has reported.
    """

    generation: int | None
    claimed: int
    left: float
    at: float
    number: int = 0
    due: float = 0.0
    ours: int = 0
    told: int = -1


class Births:
    """The function `clock` returns the seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._rows: dict[str, _Row] = {}
        self._young: OrderedDict[str, float] = OrderedDict()
        """When this process has created each member of the last minute, by UID."""
        self.in_doubt: set[str] = set()
        """The UIDs of the sets and pools to confirm."""

    def wait_s(self, owner: Owner) -> float:
        """Return the seconds that the next create has to wait, or 0."""
        now, row = self._now(), self._row(owner)
        if row.left >= 1:
            return 0.0
        number = row.number
        if row.due <= now:
            number, left = number + 1, 0.0 if not number else float(max(owner.wanted, 1))
            delay = growing_delay(number, FIRST_DELAY, LONGEST_DELAY).total_seconds()
            row = row._replace(number=number, left=left, due=now + delay)
            self._rows[owner.uid] = row
        return 0.0 if row.left >= 1 else row.due - now

    def is_told(self, owner: Owner) -> bool:
        """Return True if the wait for the next round was reported before. From now on, it was."""
        row = self._row(owner)
        self._rows[owner.uid] = row._replace(told=row.number)
        return row.told == row.number

    def pause_s(self, owner: Owner) -> float:
        """Return the seconds until the next round if no member may be created before, or 0."""
        row = self._row(owner)
        return max(row.due - self._now(), 0.0) if row.left < 1 else 0.0

    def made(self, owner: Owner, uid: str) -> None:
        row, now = self._row(owner), self._now()
        self._young[uid] = now
        while next(iter(self._young.values())) + CALM_S <= now:
            self._young.popitem(last=False)
        self._rows[owner.uid] = row._replace(left=max(row.left - 1, 0.0))

    def deleted(self, owner: Owner) -> None:
        row = self._row(owner)
        self._rows[owner.uid] = row._replace(ours=row.ours + 1)

    def changed(self, old: Any, new: Any) -> None:
        """A cache shows another state of a VM or VMI. One that others have deleted may come back."""
        owner = controller_of(old.metadata) if old is not None else None
        row = self._rows.get(owner.uid) if owner is not None else None
        if owner is None or row is None:
            return
        age_s = self._now() - self._young.get(old.metadata.uid, float("-inf"))
        if new is None or new.metadata.uid != old.metadata.uid:
            row = row._replace(ours=row.ours - 1) if row.ours else row._replace(left=row.left + 1)
            if age_s < DOUBT_S:
                self.in_doubt.add(owner.uid)
        elif not is_controlled_by(new.metadata, owner.uid) and age_s >= CALM_S:
            row = row._replace(left=row.left + 1)
        self._rows[owner.uid] = row

    def forget_calm(self) -> None:
        """Forget the sets and pools that have created nothing for so long that nothing is to be remembered."""
        old = [each for each, row in self._rows.items() if max(row.at, row.due) + 60 * (ROUNDS + MORE) < self._now()]
        for each in old:
            del self._rows[each]
        self.in_doubt &= self._rows.keys()

    def _row(self, owner: Owner) -> _Row:
        now, row, wanted = self._now(), self._rows.get(owner.uid), min(max(owner.wanted, 1), MOST)
        most = float(ROUNDS * wanted + MORE)
        if row is None or (row.number and row.due + CALM_S < now):
            return _Row(owner.generation, owner.claimed, most, now)
        added = max(owner.claimed - row.claimed, 0) + (wanted if row.generation != owner.generation else 0.0)
        added += 0.0 if row.number else (now - row.at) * wanted / 60
        left = min(row.left + added, most)
        return row._replace(generation=owner.generation, claimed=owner.claimed, left=left, at=now)
