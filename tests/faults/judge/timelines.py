"""The life of each owner, a set or a pool: one point for each change of the owner or of a member."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from msgspec import Struct

from tests.faults.judge import states
from tests.faults.judge.history import Change, History
from tests.faults.judge.judge import Run
from tests.faults.judge.states import CHILD_OF, OWNERS, Object


class Point(Struct, frozen=True):
    """The state after a change.

    `owner` is None before the owner exists and after it is gone. `counted` is the number of members that count as
    replicas (R3, P7). `staying` is the number of members without a deletion timestamp (for a set: the active members).
    `created` is the number of members that the controller has created so far.
    """

    change: Change
    time: float
    owner: Object | None
    counted: int
    staying: int
    created: int


class Timeline(Struct, frozen=True):
    """The history of one owner, as points in time. The times never go back."""

    uid: str
    kind: str
    name: str
    points: tuple[Point, ...]

    def window(self, run: Run, index: int) -> tuple[Point, ...]:
        """Return the points whose state the controller may have seen before it made the change at the point `index`.

        The first of them is the last point before the window starts. The point `index` is left out.
        """
        start = run.window(self.points[index].time)
        first = bisect_left(self.points, start, hi=index, key=lambda point: point.time)
        return self.points[max(first - 1, 0) : index]

    def owners(self, run: Run, index: int) -> list[Object]:
        """Return the states of the owner in the window."""
        return [point.owner for point in self.window(run, index) if point.owner is not None]


class Step(Struct, frozen=True):
    """A change that the controller made to a member, with the timeline of the owner."""

    timeline: Timeline
    index: int

    @property
    def point(self) -> Point:
        return self.timeline.points[self.index]

    @property
    def change(self) -> Change:
        return self.point.change


def timelines(history: History) -> Mapping[str, Timeline]:
    """Return the timeline of each owner by UID."""
    return history.derive(_timelines)


def our_creates(history: History) -> Iterator[Step]:
    """Yield the steps in which the controller created a member."""
    for step in our_steps(history):
        if step.change.before is None:
            yield step


def our_deletes(history: History) -> Iterator[Step]:
    """Yield the deletions of members that the controller began."""
    for step in our_steps(history):
        author = step.change.author
        if step.change.starts_deletion and author is not None and author.verb == "delete":
            yield step


def our_steps(history: History) -> Iterator[Step]:
    """Yield the changes of members by the controller."""
    for timeline in timelines(history).values():
        for index, point in enumerate(timeline.points):
            if point.change.ours and point.change.kind == CHILD_OF[timeline.kind]:
                yield Step(timeline, index)


class _Life:
    """Collects the points of one owner."""

    def __init__(self, uid: str, kind: str) -> None:
        self.uid, self.kind, self.name = uid, kind, ""
        self.owner: Object | None = None
        self.members: dict[str, Object] = {}
        self.created = 0
        self.points: list[Point] = []

    def take(self, change: Change) -> None:
        if change.kind == self.kind and change.uid == self.uid:
            self.owner, self.name = change.after, change.name
        else:
            self._take_member(change)
        time = max(change.time, self.points[-1].time) if self.points else change.time
        model = self.owner or {"kind": self.kind}
        # A member whose labels do not match will be released, so it needs a replacement already now.
        members = [
            each
            for each in self.members.values()
            if not self.owner or states.selects(self.owner, states.labels_of(each))
        ]
        counted = sum(states.counts(model, each) for each in members)
        staying = sum(not states.is_deleting(each) for each in members if states.counts(model, each))
        self.points.append(Point(change, time, self.owner, counted, staying, self.created))

    def _take_member(self, change: Change) -> None:
        if change.after is None or states.controller_uid(change.after) != self.uid:
            self.members.pop(change.uid, None)
            return
        self.members[change.uid] = change.after
        if change.before is None and change.ours:
            self.created += 1


def _timelines(history: History) -> Mapping[str, Timeline]:
    # A list shows an owner with its newest revision, which can come after the revisions of its members.
    lives = {change.uid: _Life(change.uid, change.kind) for change in history.changes if change.kind in OWNERS}
    owner_kind = {child: owner for owner, child in CHILD_OF.items()}
    for change in history.changes:
        if change.kind in OWNERS:
            lives[change.uid].take(change)
        if change.kind not in owner_kind:
            continue
        owners = {states.controller_uid(each) for each in (change.before, change.after) if each is not None} - {""}
        for uid in owners:
            life = lives.get(uid)
            if life is not None and life.kind == owner_kind[change.kind]:
                life.take(change)
    return {life.uid: Timeline(life.uid, life.kind, life.name, tuple(life.points)) for life in lives.values()}


def most_wanted(owners: list[Object]) -> int:
    additional = (states.most_surge(owner) + states.most_substitutes(owner) for owner in owners)
    return max((states.wanted(owner) + more for owner, more in zip(owners, additional, strict=True)), default=0)


def fewest_wanted(owners: list[Object]) -> int:
    """Return the smallest number of members that the owner wanted in these states. An owner that is being deleted wants
    no member.
    """
    return min((0 if states.is_deleting(owner) else states.wanted(owner) for owner in owners), default=0)
