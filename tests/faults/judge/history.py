"""The history of one namespace: every state of every object, and every request to the API server.

There are two sources. The observer watches the API server and gives the states (`Observation`). The audit log gives the
requests (`Request`), with the level `RequestResponse` for writes. What the controller reports is not a source.

The answer to a write has the resourceVersion of its result. So a write and the state that it made are joined exactly,
by kind and resourceVersion. Three cases have no resourceVersion, and are joined by name, UID and time: a delete request
that removes the object at once, the last write to a terminating object, and a write whose answer is an error although
the write happened (5xx).

If the observer missed states, `completion` adds them from the answers to the writes. What is still missing is a `Hole`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from tests.faults.judge.states import Object, controller_uid, name_of, references_of, uid_of, version_of
from tests.faults.resources import KIND_OF

T = TypeVar("T")

USER_AGENT: Final = "vmherd/"
GARBAGE_COLLECTOR: Final = "generic-garbage-collector"
UNANSWERED_S: Final = 90.0
"""A write without a known answer may take effect within this time."""

Type = Literal["ADDED", "MODIFIED", "DELETED"]


class Observation(Struct, frozen=True):
    """One state of an object. `time` is the arrival at the observer, in seconds since 1970.

    For DELETED, `object` is the last state.
    """

    revision: int
    kind: str
    type: Type
    object: Object
    time: float = 0.0


class Request(Struct, frozen=True, kw_only=True):
    """One request in the audit log. `time` is when the server received the request, `answered` when it answered.

    `body` is the request's body: the object, the patch, or the DeleteOptions. `answer` is the response's body. Both are
    None for reads. A dry run counts as a read, because it changes nothing.
    """

    time: float
    answered: float
    verb: str
    resource: str
    name: str
    code: int
    user_agent: str
    subresource: str = ""
    namespace: str = ""
    user: str = ""
    credential: str = ""
    dry_run: bool = False
    body: Any = None
    answer: Object | None = None

    @property
    def ours(self) -> bool:
        """True for a request of the controller. Its user agent is `vmherd/<version> (<commit>)`.

        The user agent of the commands, such as `vmherd cleanup`, has no commit. The user agent of the simulator is
        `vmherd-simulator`.
        """
        return self.user_agent.startswith(USER_AGENT) and "(" in self.user_agent

    @property
    def kind(self) -> str:
        return KIND_OF.get(self.resource, "")

    @property
    def is_write(self) -> bool:
        return self.verb not in ("get", "list", "watch") and not self.dry_run

    @property
    def succeeded(self) -> bool:
        return 200 <= self.code < 300

    @property
    def revision(self) -> int:
        """The resourceVersion in the answer, or 0 if the answer has none."""
        return version_of(self.answer) if self.answer and self.succeeded and not self.dry_run else 0

    @property
    def by_collector(self) -> bool:
        return GARBAGE_COLLECTOR in self.user

    def __str__(self) -> str:
        target = "/".join(part for part in (self.resource, self.name, self.subresource) if part)
        return f"{'try to ' if self.dry_run else ''}{self.verb} {target} -> {self.code}"


Write = Request


class Hole(Struct, frozen=True):
    """A part of the history that the observer did not see, and why."""

    kind: str
    after: int
    until: int
    why: str


class Change(Struct, frozen=True):
    """One step of the history: an object before and after. The field `before` is None for a new object, and the field
    `after` is None for a removal.

    `author` is the write that made the change, or None if it is not known. `time` is the time of the server's answer to
    this write. Without a known write, `time` is the time of the observation.
    """

    number: int
    revision: int
    kind: str
    name: str
    uid: str
    before: Object | None
    after: Object | None
    time: float
    author: Request | None = None

    @property
    def ours(self) -> bool:
        return self.author is not None and self.author.ours

    @property
    def object(self) -> Object:
        """The state after the change, or the last state of a removed object."""
        state = self.after if self.after is not None else self.before
        assert state is not None
        return state

    @property
    def was(self) -> Object:
        """The state before the change of an object that is not new."""
        assert self.before is not None
        return self.before

    @property
    def write(self) -> Request:
        """The write that made the change, if it is known."""
        assert self.author is not None
        return self.author

    @property
    def starts_deletion(self) -> bool:
        """True if the object began to terminate, or was removed at once."""
        if self.before is None or "deletionTimestamp" in self.before["metadata"]:
            return False
        return self.after is None or "deletionTimestamp" in self.after["metadata"]


class World:
    """The objects at one revision. A world that `History.replay` yields must not be changed."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Object] = {}
        self._by_uid: dict[str, Object] = {}
        self._children: dict[str, dict[str, Object]] = defaultdict(dict)

    def get(self, kind: str, name: str) -> Object | None:
        return self._objects.get((kind, name))

    def by_uid(self, uid: str) -> Object | None:
        return self._by_uid.get(uid)

    def all(self, *kinds: str) -> Iterator[Object]:
        return (item for (kind, _), item in self._objects.items() if kind in kinds)

    def children(self, owner_uid: str, kind: str = "") -> list[Object]:
        """The objects whose controller has this UID."""
        return [item for item in self._children.get(owner_uid, {}).values() if kind in ("", item["kind"])]

    def apply(self, change: Change) -> None:
        if change.before is not None:
            self._children[controller_uid(change.before)].pop(change.uid, None)
        if change.after is None:
            self._objects.pop((change.kind, change.name), None)
            self._by_uid.pop(change.uid, None)
            return
        self._objects[change.kind, change.name] = change.after
        self._by_uid[change.uid] = change.after
        if owner := controller_uid(change.after):
            self._children[owner][change.uid] = change.after


class History(Struct, frozen=True, dict=True):
    """The observations by revision, and the requests by time. `holes` are the parts that the observer did not see.

    All other values are computed from these fields.
    """

    observations: tuple[Observation, ...]
    requests: tuple[Request, ...] = ()
    holes: tuple[Hole, ...] = field(default=())

    def derive(self, make: Callable[["History"], T]) -> T:
        """Return `make(history)`. The value is computed once."""
        derived: dict[Any, Any] = self.__dict__.setdefault("_derived", {})
        if make not in derived:
            derived[make] = make(self)
        value: T = derived[make]
        return value

    @cached_property
    def writes(self) -> tuple[Request, ...]:
        return tuple(each for each in self.requests if each.is_write)

    @cached_property
    def ours(self) -> tuple[Request, ...]:
        """The requests of the controller, in the order in which the server received them."""
        return tuple(each for each in self.requests if each.ours)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        return tuple(_changes(self.observations, _Authors(self.writes)))

    @cached_property
    def objects(self) -> Mapping[tuple[str, str], tuple[Change, ...]]:
        """The changes of each object by kind and UID."""
        found: dict[tuple[str, str], list[Change]] = defaultdict(list)
        for each in self.changes:
            found[each.kind, each.uid].append(each)
        return {key: tuple(changes) for key, changes in found.items()}

    def is_after_hole(self, change: Change) -> bool:
        """Return True if the observer may have missed a state of the object just before the change."""
        seen = version_of(change.before) if change.before is not None else 0
        holes = (hole for hole in self.holes if hole.kind == change.kind)
        return any(hole.after < change.revision and hole.until > seen for hole in holes)

    def effect(self, write: Request) -> Change | None:
        """Return the change that a write made.

        None means that the write changed nothing, or that its effect is unknown.
        """
        return self._effects.get(id(write))

    @cached_property
    def _effects(self) -> Mapping[int, Change]:
        return {id(each.author): each for each in self.changes if each.author is not None}

    def replay(self) -> Iterator[tuple[Change, World]]:
        """Yield each change with the world before it."""
        world = World()
        for change in self.changes:
            yield change, world
            world.apply(change)

    @cached_property
    def end(self) -> World:
        """Return all objects as they are after the last change."""
        world = World()
        for change in self.changes:
            world.apply(change)
        return world

    def at(self, kind: str, uid: str, time: float) -> Object | None:
        """The state of an object at this time, or None if it did not exist."""
        changes = self.objects.get((kind, uid), ())
        index = bisect_right(changes, time, key=lambda each: each.time)
        return changes[index - 1].after if index else None


class _Authors:
    """Finds the write that made a change."""

    def __init__(self, writes: Iterable[Request]) -> None:
        self._by_revision: dict[tuple[str, int], list[Request]] = defaultdict(list)
        self._by_uid: dict[tuple[str, str], list[Request]] = defaultdict(list)
        self._by_name: dict[tuple[str, str], list[Request]] = defaultdict(list)
        for write in writes:
            if write.kind and write.revision and not _only_tests(write) and not _removes_by_patch(write):
                self._by_revision[write.kind, write.revision].append(write)
            if write.kind and write.succeeded and (uid := answered_uid(write)):
                self._by_uid[write.kind, uid].append(write)
            if write.kind and write.code >= 500:
                self._by_name[write.kind, write.name].append(write)
        for same in self._by_revision.values():
            # A write that changes nothing is answered with the revision of an earlier write.
            same.sort(key=lambda each: each.answered)
        self._used: set[int] = set()

    def of(self, observation: Observation, before: Object | None) -> Request | None:
        found = self._find(observation, before)
        if found is not None:
            self._used.add(id(found))
        return found

    def _find(self, observation: Observation, before: Object | None) -> Request | None:
        kind, item = observation.kind, observation.object
        # A write that changed nothing has the version of an earlier write. After a restore of etcd, versions repeat.
        exact = (each for each in self._by_revision[kind, observation.revision] if id(each) not in self._used)
        if (found := next((each for each in exact if answered_uid(each) == uid_of(item)), None)) is not None:
            return found
        if observation.type == "DELETED":
            mine = [each for each in self._by_uid[kind, uid_of(item)] if id(each) not in self._used]
            # A delete that is answered without an object has removed the object.
            last = [each for each in mine if each.verb == "delete" and not each.revision] or mine
            if last and (last[-1].verb == "delete" or before is None or "deletionTimestamp" in before["metadata"]):
                return last[-1]
        return self._unanswered(observation, before)

    def _unanswered(self, observation: Observation, before: Object | None) -> Request | None:
        """Return a write of this object that was answered with 5xx shortly before.

        If the write names a version, the object had this version. The server refuses a write for another version.
        """
        for write in self._by_name[observation.kind, name_of(observation.object)]:
            fits = (write.verb == "create") == (before is None) and (write.verb == "delete") == _deletes(observation)
            fits = fits and (before is None or named_version(write) in ("", str(version_of(before))))
            if fits and id(write) not in self._used and 0 <= observation.time - write.time <= UNANSWERED_S:
                return write
        return None


def named_version(write: Request) -> str:
    """Return the resourceVersion in the body of a patch, or ""."""
    metadata = (write.body.get("metadata") or {}) if isinstance(write.body, dict) else {}
    return str(metadata.get("resourceVersion") or "")


def _only_tests(write: Request) -> bool:
    """Return True for a JSON patch that changes nothing."""
    return write.verb == "patch" and isinstance(write.body, list) and all(op.get("op") == "test" for op in write.body)


def _removes_by_patch(write: Request) -> bool:
    """Return True if the write removed the last finalizer. The answer then has the resourceVersion of the change before
    this write.
    """
    metadata = (write.answer or {}).get("metadata") or {}
    return write.verb == "patch" and "deletionTimestamp" in metadata and not metadata.get("finalizers")


def removes(write: Request) -> bool:
    """Return True if the answer shows that the write removed the object."""
    return write.succeeded and (_removes_by_patch(write) or (write.verb == "delete" and not write.revision))


def _deletes(observation: Observation) -> bool:
    return observation.type == "DELETED" or "deletionTimestamp" in observation.object["metadata"]


def answered_uid(write: Request) -> str:
    """Return the UID in the answer.

    If a delete request removes the object at once, the answer is a Status that contains the UID.
    """
    answer = write.answer or {}
    return str((answer.get("details") or {}).get("uid") or (answer.get("metadata") or {}).get("uid") or "")


def _changes(observations: Iterable[Observation], authors: _Authors) -> Iterator[Change]:
    current: dict[tuple[str, str], Object] = {}
    for number, each in enumerate(sorted(observations, key=lambda each: each.revision)):
        name, uid = name_of(each.object), uid_of(each.object)
        before = current.get((each.kind, uid))
        author = authors.of(each, before)
        after = None if each.type == "DELETED" else each.object
        if after is None:
            before = before or each.object
            current.pop((each.kind, uid), None)
        else:
            current[each.kind, uid] = after
        time = author.answered if author is not None else each.time
        yield Change(number, each.revision, each.kind, name, uid, before, after, time, author)


def own_reference(item: Object, owner_uid: str) -> Object | None:
    """Return the ownerReference of the object to the owner with this UID, or None."""
    return next((each for each in references_of(item) if each["uid"] == owner_uid), None)


def shown(item: object, limit: int = 600) -> str:
    """Return an object as short JSON, for evidence."""
    text = msgspec.json.encode(item).decode()
    return text if len(text) <= limit else f"{text[:limit]}..."
