"""A property test of the state machine against a model of a server.

After any sequence of failures, the cache has the same contents as the server.

The model keeps a history of versions. It answers list and watch requests in all ways that an API server may answer.
Lists are paged or streaming. Events may be repeated, the history may expire, and objects may be undecodable. An answer
may come from a stale server behind the same load balancer.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from informers.errors import (
    ApiError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerTimeout,
    TooManyRequests,
    TransportError,
)
from informers.meta import ObjectKey, is_older
from informers.store import Added, Change, Removed, Store, Updated
from informers.watch.effects import Commit, QuickEffect
from informers.watch.parser import Applied, Bookmark, Deleted, Undecodable, WatchError
from informers.watch.reflector import Reflector
from informers.watch.watch_state import (
    Checking,
    Ended,
    Failed,
    Listing,
    PageRead,
    Silent,
    State,
    Streaming,
    StreamInput,
    Waiting,
    Watching,
    begins_list,
    checking,
    listing,
)
from tests.informers.scripted import RecordedInstruments, ScriptedClient
from tests.informers.subjects import CONFIGMAPS, ConfigMap, config_map, key

PAGE = 2
Write: TypeAlias = tuple[str, bool, bool]
"""The name of an object, whether the write deletes it, and whether it can be decoded."""

WRITES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.booleans(), st.sampled_from([True, True, True, False])), max_size=6
)

MAX_STEPS = 300

FAILURES = (
    TransportError("refused", sent=False),
    TransportError("cut", sent=True),
    Forbidden("no", code=403),
    NotFound("not served", code=404),
    TooManyRequests("busy", code=429, retry_after_s=1),
    ServerTimeout("too large", code=504, causes=("ResourceVersionTooLarge",)),
    Gone("expired", code=410),
    Invalid("sendInitialEvents is forbidden", code=422),
)


class Entry(NamedTuple):
    """One write: the new state of the object, or its last state if it was deleted."""

    version: int
    obj: ConfigMap
    deleted: bool
    decodable: bool

    def as_event(self) -> Applied[ConfigMap] | Deleted[ConfigMap] | Undecodable:
        if not self.decodable:
            return Undecodable("odd", self.obj.metadata, deleted=self.deleted)
        return Deleted(self.obj) if self.deleted else Applied(self.obj)


class Server:
    def __init__(self) -> None:
        self.history: list[Entry] = []
        self.version = 10
        self.compacted = 0
        self._births = 0

    def at(self, version: int) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for entry in self.history:
            if entry.version > version:
                break
            found.pop(entry.obj.metadata.name, None)
            if not entry.deleted:
                found[entry.obj.metadata.name] = entry
        return found

    def write(self, name: str, *, delete: bool, decodable: bool) -> None:
        existing = self.at(self.version).get(name)
        if delete and existing is None:
            return
        self.version += 1
        if existing is None:
            self._births += 1
        uid = existing.obj.metadata.uid if existing else f"{name}-{self._births}"
        self.history.append(Entry(self.version, config_map(name, self.version, uid=uid), delete, decodable))

    def since(self, version: int) -> list[Entry]:
        return [entry for entry in self.history if entry.version > version]


class ReflectorAgainstAServer(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.store: Store[ConfigMap] = Store()
        self.state: State = Streaming()
        self.reflector: Reflector[ConfigMap] = Reflector(
            CONFIGMAPS,
            ScriptedClient(),
            self.store,
            scope="",
            transform=None,
            emit=lambda change: self.receive([change]),
            completed=lambda: None,
            instruments=RecordedInstruments(),
            chance=lambda: 0.0,
        )
        self.pages: dict[str, PageRead[ConfigMap]] = {}
        self.replacement = self.store.begin_replace()
        self.stream: Iterator[StreamInput[ConfigMap]] | None = None
        self.received: dict[ObjectKey, ConfigMap] = {}
        self.newest: dict[ObjectKey, int] = {}
        self.decoded_uids: set[str] = set()
        self.reached = 0

    # Changes on the server

    @rule(writes=WRITES)
    def write(self, writes: list[Write]) -> None:
        for name, delete, decodable in writes:
            self.server.write(name, delete=delete, decodable=decodable)

    @rule()
    def forget_history(self) -> None:
        self.server.compacted = self.server.version

    # Inputs of the state machine

    @rule(count=st.integers(1, 6))
    def make_progress(self, count: int) -> None:
        for _ in range(count):
            self.step(self.answer(self.server.version))

    @precondition(lambda self: not isinstance(self.state, Waiting))
    @rule(error=st.sampled_from(FAILURES), in_stream=st.booleans())
    def fail(self, error: ApiError, in_stream: bool) -> None:
        inside = in_stream and not isinstance(self.state, Listing | Checking) and not isinstance(error, TransportError)
        self.step(WatchError(error) if inside else Failed(error))

    @precondition(lambda self: isinstance(self.state, Streaming | Watching))
    @rule(how=st.sampled_from([Ended(0.1), Ended(300), Silent()]))
    def end(self, how: Ended | Silent) -> None:
        self.step(how)

    @precondition(lambda self: isinstance(self.state, Watching) and self.server.history)
    @rule(back=st.integers(1, 8), count=st.integers(1, 8))
    def replay(self, back: int, count: int) -> None:
        """A stale server repeats events. The informer has received these events before."""
        seen = [entry for entry in self.server.history if entry.version <= self.reached]
        for entry in seen[-back:][:count]:
            self.step(entry.as_event())
            if is_older(str(entry.version), self.state.version):
                return self.step(Bookmark(str(entry.version)))

    @precondition(lambda self: isinstance(self.state, Watching))
    @rule(
        by_pages=st.booleans(),
        lag=st.integers(0, 6),
        answers=st.integers(0, 5),
        error=st.sampled_from(FAILURES),
        before=WRITES,
        meanwhile=WRITES,
    )
    def list_again(
        self, by_pages: bool, lag: int, answers: int, error: ApiError, before: list[Write], meanwhile: list[Write]
    ) -> None:
        """Let the watch expire, so that a new list begins.

        The list may come from a server with old data, or end early.
        """
        self.reflector._relist = Listing() if by_pages else Streaming()
        self.step(WatchError(Gone("too old", code=410)))
        self.step(None)
        self.write(before)
        for _ in range(answers):
            if isinstance(self.state, Listing | Streaming):
                self.step(self.answer(max(1, self.server.version - lag)))
        if isinstance(self.state, Listing | Streaming):
            self.step(Failed(error))
            self.write(meanwhile)

    # Answers of the server

    def answer(self, version: int) -> Any:
        match self.state:
            case Waiting():
                return None
            case Checking():
                return PageRead((), str(version), "more")
            case Listing(token=token):
                if not token:
                    self.pages = dict(self.paged(version))
                return self.pages[token]
            case Streaming():
                if self.stream is None:
                    self.stream = iter(self.streamed(version))
                return next(self.stream)
            case Watching(version=since):
                if int(since) < self.server.compacted:
                    return WatchError(Gone("too old", code=410))
                entries = self.server.since(int(since))
                return entries[0].as_event() if entries else Bookmark(str(max(version, int(since))))

    def paged(self, version: int) -> Iterator[tuple[str, PageRead[ConfigMap]]]:
        entries = list(self.server.at(version).values())
        starts = list(range(0, len(entries), PAGE)) or [0]
        for start in starts:
            part = entries[start : start + PAGE]
            yield (
                str(start) if start else "",
                PageRead(
                    tuple(entry.obj for entry in part if entry.decodable),
                    str(version),
                    str(start + PAGE) if start != starts[-1] else "",
                    tuple(Undecodable("odd", entry.obj.metadata) for entry in part if not entry.decodable),
                ),
            )

    def streamed(self, version: int) -> Iterable[StreamInput[ConfigMap]]:
        """The events of a streaming list: objects of an older version, changes since then, and the final bookmark."""
        begin = version - 2
        for entry in self.server.at(begin).values():
            yield entry.as_event()
        for entry in self.server.since(begin):
            if entry.version <= version:
                yield entry.as_event()
        yield Bookmark(str(version), initial_end=True)

    # The part of the reflector's loop. The reflector itself performs all effects except the commit, which waits.

    def step(self, event: Any) -> None:
        before = self.state
        match before:
            case Waiting():
                self.state, effects = before.then, ()
            case Listing():
                self.state, effects = listing(before, event, cached=self.store.version())
            case Checking():
                self.state, effects = checking(before, event, relist=self.reflector._relist), ()
            case _:
                self.state, effects = self.reflector._next(before, event)
        for effect in effects:
            self.perform(effect)
        if begins_list(self.state) and self.state != before:
            self.replacement = self.store.begin_replace()
        if not isinstance(self.state, Streaming):
            self.stream = None

    def perform(self, effect: QuickEffect[ConfigMap] | Commit) -> None:
        match effect:
            case Commit(version=version, rewound=rewound):
                assert not rewound, "this server never goes back in time"
                incoming = self.replacement
                self.store.commit(incoming, version)
                assert not self.store.rewinds, "this server never goes back in time"
                for changes in incoming.changes(at_once=3):
                    self.receive(changes)
            case _:
                self.reflector._perform(effect, self.replacement)

    def receive(self, changes: Iterable[Change[ConfigMap]]) -> None:
        for change in changes:
            match change:
                case Added(new=new):
                    assert new.metadata.key not in self.received
                    assert _version(new) > self.newest.get(new.metadata.key, 0)
                    self.received[new.metadata.key] = new
                    self.decoded_uids.add(new.metadata.uid)
                case Updated(old=old, new=new):
                    assert self.received[new.metadata.key] is old
                    self.received[new.metadata.key] = new
                case Removed(last_known=last):
                    assert self.received.pop(last.metadata.key).metadata.uid == last.metadata.uid
                    self.newest[last.metadata.key] = _version(last)

    # Invariants

    @invariant()
    def handlers_and_readers_have_the_same_objects(self) -> None:
        assert {obj.metadata.key: obj for obj in self.store.values()} == self.received

    @invariant()
    def versions_never_decrease(self) -> None:
        version = int(self.store.version() or 0)
        assert version >= self.reached
        self.reached = version
        for obj in self.store.values():
            assert _version(obj) >= self.newest.get(obj.metadata.key, 0)
            self.newest[obj.metadata.key] = _version(obj)

    @invariant()
    def the_cache_matches_the_server_at_the_version_of_the_watch(self) -> None:
        if isinstance(self.state, Watching):
            self.compare_with(self.server.at(int(self.state.version)))

    def compare_with(self, expected: dict[str, Entry]) -> None:
        cached = {obj.metadata.key: obj for obj in self.store.values()}
        for name, entry in expected.items():
            shown = cached.pop(key(name), None)
            if entry.decodable:
                assert shown == entry.obj
            else:
                # The cache has the last decoded state, if any state of the object was ever decoded.
                assert (entry.obj.metadata.uid in self.decoded_uids) == (shown is not None)
                assert shown is None or shown.metadata.uid == entry.obj.metadata.uid
        assert cached == {}

    def teardown(self) -> None:
        """If no further failure happens, the cache gets the same contents as the server."""
        for _ in range(MAX_STEPS):
            if isinstance(self.state, Watching) and int(self.state.version) == self.server.version:
                break
            self.step(self.answer(self.server.version))
        else:
            raise AssertionError(f"the cache did not reach the server's version: {self.state}")
        self.compare_with(self.server.at(self.server.version))
        self.handlers_and_readers_have_the_same_objects()


def _version(obj: ConfigMap) -> int:
    return int(obj.metadata.resource_version)


TestReflectorAgainstAServer = ReflectorAgainstAServer.TestCase
TestReflectorAgainstAServer.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
