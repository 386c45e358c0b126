"""A reflector lists and watches one scope of one resource, a namespace or all, and updates the store.

`informers.watch.watch_state` decides each step. This module sends the requests and applies the effects, until its task
is cancelled. It decodes one page or chunk at a time, and compares a new list in slices, so the event loop goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Generic, NamedTuple, TypeVar, assert_never

import structlog
from msgspec import Struct

from informers.errors import ApiError, TransportError
from informers.http.client import ApiClient
from informers.instruments import Instruments
from informers.meta import KubeObject, ObjectKey, ObjectMeta
from informers.ratelimit import Backoff
from informers.resource import UNDECODABLE, Resource
from informers.store import Change, Replacement, Store
from informers.watch.effects import (
    Advance,
    Apply,
    Collect,
    Commit,
    GiveUpStreaming,
    Keep,
    QuickEffect,
    Remove,
    Skip,
    Uncollect,
)
from informers.watch.parser import WatchParser, decode_page
from informers.watch.watch_state import (
    Checking,
    Ended,
    Failed,
    Listing,
    ListStep,
    PageInput,
    Silent,
    State,
    Streaming,
    StreamInput,
    Waiting,
    Watching,
    WatchStep,
    begins_list,
    checking,
    listing,
    reason_of_end,
    streaming,
    watch_params,
    watching,
)

log = structlog.get_logger()

T = TypeVar("T", bound=KubeObject)

PAGE_SIZE = 500
PAGE_TIMEOUT_S = 60.0
COMPARE_SLICE = 250
"""Number of objects that are compared and sent to the handlers before other tasks run."""

IDLE_TIMEOUT_S = 120.0
"""A watch without data for this time is closed. The server sends a bookmark about once a minute."""

MAX_LOGGED_OBJECTS = 1000
"""Largest number of undecodable objects that are logged. Further undecodable objects are counted, but not logged."""


class _Doubt(Struct, frozen=True):
    """The cache contradicts the server. `restored` is True if the server was restored from a backup."""

    restored: bool


class _Round(NamedTuple, Generic[T]):
    """One list, from its first request to its end, with a `reason` for metrics and the last `doubt` that it settles."""

    replacement: Replacement[T]
    doubt: _Doubt | None
    reason: str


class Reflector(Generic[T]):
    """A loop that keeps one scope of one resource in the store up to date.

    `emit` is called with each change, and `completed` after all changes of a complete list. For `transform`, see
    `SharedInformer`. `chance` returns a random number in [0, 1).
    """

    def __init__(
        self,
        resource: Resource[T],
        client: ApiClient,
        store: Store[T],
        *,
        scope: str,
        transform: Callable[[T], T | None] | None,
        emit: Callable[[Change[T]], None],
        completed: Callable[[], None],
        instruments: Instruments,
        chance: Callable[[], float],
    ) -> None:
        self.scope = scope
        self.listed = False
        self.missing = False
        self.waiting_for = ""
        self.path = resource.path(scope)
        self._emitting = False
        self._resource = resource
        self._client = client
        self._store = store
        self._transform: Callable[[T], T | None] = transform or (lambda obj: obj)
        self._emit = emit
        self._completed = completed
        self._instruments = instruments
        self._chance = chance
        self._labels = {"resource": resource.name, "scope": scope or "all namespaces"}
        self._backoff = Backoff(initial_s=0.8, maximum_s=30.0, reset_after_s=120.0, chance=chance)
        self._cheap_backoff = Backoff(initial_s=0.8, maximum_s=3.0, reset_after_s=120.0, chance=chance)
        self._relist: Listing | Streaming = Streaming()
        self._ended = ""
        self._last_progress: float | None = None
        self._doubt: _Doubt | None = None
        self._reading: asyncio.Timeout | None = None
        """The end of this timeout interrupts the read of a watch. None if no watch is being read."""

        self._logged_versions: dict[ObjectKey, str] = {}
        """The resourceVersion of the last logged error for each undecodable object."""

    def silent_s(self, now: float) -> float:
        """Return the seconds since data last arrived, or else since the start of `run`, or 0 before the start."""
        return 0.0 if self._last_progress is None else now - self._last_progress

    @property
    def seen(self) -> str:
        """The last resourceVersion whose changes all handlers have received, or "" while a list is sent to them."""
        return "" if self._emitting else self._store.version(self.scope)

    def relist(self, why: str, *, restored: bool) -> None:
        """Close the watch and list again, because the cache contradicts the server. Return at once.

        `restored` is True if the server was restored from a backup. If the first list is not complete yet, do nothing.
        A list that has begun before does not settle the contradiction.
        """
        if not self.listed:
            return
        self._doubt = _Doubt(restored=restored or (self._doubt is not None and self._doubt.restored))
        log.warning("the cache contradicts the server, listing again", **self._labels, why=why)
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        self._progress()
        state: State = self._relist
        current = self._begin()
        while True:
            if begins_list(state):
                current = self._begin()
            match state:
                case Waiting():
                    state = await self._wait(state)
                case Listing():
                    page = await self._read_page(PAGE_SIZE, state.token)
                    state = await self._enter(listing(state, page, cached=self._store.version(self.scope)), current)
                case Checking():
                    state = checking(state, await self._read_page(1), relist=self._relist)
                case Watching() if self._doubt is not None:
                    state = self._relist
                case Streaming() | Watching():
                    state = await self._follow(state, current)
                case _:
                    assert_never(state)

    def _begin(self) -> _Round[T]:
        reason = "expired" if self._ended == "expired" else "failure"
        if self._doubt is not None or not self.listed:
            reason = "contradiction" if self.listed else "start"
        return _Round(self._store.begin_replace(scope=self.scope), self._doubt, reason)

    async def _wait(self, state: Waiting) -> State:
        delay_s = state.at_least_s
        if state.backoff:
            backoff = self._cheap_backoff if state.cheap else self._backoff
            delay_s = max(delay_s, backoff.next(asyncio.get_running_loop().time()))
        if state.why and state.why != self.waiting_for:
            message = "resource is not served, waiting for it" if state.missing else "waiting"
            log.warning(message, **self._labels, why=state.why, cached=len(self._store))
        self.waiting_for = state.why or self.waiting_for
        self.missing = state.missing
        await asyncio.sleep(delay_s)
        return state.then

    async def _read_page(self, size: int, token: str = "") -> PageInput[T]:
        params = {"limit": str(size)}
        if token:
            params["continue"] = token
        try:
            body = await self._client.request("GET", self.path, params=params, timeout_s=PAGE_TIMEOUT_S)
        except ApiError as error:
            return Failed(error)
        self._progress()
        try:
            return decode_page(self._resource, body)
        except UNDECODABLE as error:
            return Failed(TransportError(f"the list cannot be decoded: {error}", sent=True))

    async def _follow(self, state: Streaming | Watching, round_: _Round[T]) -> State:
        """Open a watch, read its events, and return the next state at its end, or as soon as a state has no watch."""
        loop = asyncio.get_running_loop()
        started, current = loop.time(), state
        parser = WatchParser(self._resource)
        end: StreamInput[T]
        self._instruments.watch_started(self._resource.name)
        try:
            async with self._client.stream(
                self.path,
                params=watch_params(state, self._chance()),
                idle_timeout_s=IDLE_TIMEOUT_S,
                may_pause=lambda: isinstance(current, Watching),
            ) as chunks:
                if isinstance(state, Watching):
                    self._note_recovery()
                while chunk := await self._next_chunk(chunks, current):
                    self._progress()
                    for event in parser.feed(chunk):
                        next_state = await self._enter(self._next(current, event), round_)
                        if not isinstance(next_state, Streaming | Watching):
                            self._note_end(reason_of_end(event))
                            return next_state
                        current = next_state
                    self._instruments.store_size(self._resource.name, len(self._store))
            end = Ended(loop.time() - started)
        except TimeoutError:
            if self._doubt is not None and isinstance(current, Watching):
                self._note_end("contradiction")
                return current
            log.warning("watch was silent, restarting it", **self._labels, silent_s=IDLE_TIMEOUT_S)
            end = Silent()
        except ApiError as error:
            end = Failed(error)
        self._note_end(reason_of_end(end))
        return await self._enter(self._next(current, end), round_)

    async def _next_chunk(self, chunks: AsyncIterator[bytes], state: State) -> bytes:
        """Return the next data of a watch, or b"" at its end. Raise TimeoutError if it is silent or doubted."""
        if not isinstance(state, Watching):
            return await anext(chunks, b"")
        if self._doubt is not None:
            raise TimeoutError
        try:
            async with asyncio.timeout(None) as self._reading:
                return await anext(chunks, b"")
        finally:
            self._reading = None

    def _next(self, state: Streaming | Watching, event: StreamInput[T]) -> ListStep[T] | WatchStep[T]:
        if isinstance(state, Streaming):
            return streaming(state, event, cached=self._store.version(self.scope))
        return watching(state, event, relist=self._relist)

    async def _enter(self, step: ListStep[T] | WatchStep[T], round_: _Round[T]) -> State:
        state, effects = step
        for effect in effects:
            if isinstance(effect, Commit):
                await self._commit(effect, round_)
            else:
                self._perform(effect, round_.replacement)
        return state

    def _perform(self, effect: QuickEffect[T], replacement: Replacement[T]) -> None:
        match effect:
            case Apply(object=obj):
                kept = self._transform(obj)
                if kept is None:
                    self._emit_all(self._store.remove(obj.metadata, scope=self.scope))
                else:
                    self._emit_all(self._store.apply(kept, scope=self.scope))
            case Remove(meta=meta, last=last):
                kept = None if last is None else self._transform(last)
                self._emit_all(self._store.remove(meta, kept, scope=self.scope))
            case Advance(version=version):
                self._store.advance(version, scope=self.scope)
            case Skip():
                self._skip(effect)
            case GiveUpStreaming():
                self._relist = Listing()
            case Collect(objects=objects):
                for obj in objects:
                    self._collect(replacement, obj)
            case Uncollect(meta=meta):
                replacement.drop(meta.key)
            case Keep(meta=meta):
                replacement.keep(meta)
            case _:
                assert_never(effect)

    def _collect(self, replacement: Replacement[T], obj: T) -> None:
        if (kept := self._transform(obj)) is None:
            replacement.drop(obj.metadata.key)
        else:
            replacement.put(kept)

    async def _commit(self, commit: Commit, round_: _Round[T]) -> None:
        replacement, doubt, reason = round_
        rewound = commit.rewound or replacement.goes_back or (doubt is not None and doubt.restored)
        if self._doubt is doubt:
            self._doubt = None
        if rewound:
            before = self._store.version(self.scope)
            log.error(
                "the server has gone back in time, its state replaces the cache",
                **self._labels,
                cached_version=before,
                version=commit.version,
            )
        self._store.commit(replacement, commit.version, scope=self.scope, rewound=rewound)
        self._instruments.listed(self._resource.name, reason=reason)
        self._instruments.store_size(self._resource.name, len(self._store))
        self._note_recovery()
        self._emitting = True
        for changes in replacement.changes(at_once=COMPARE_SLICE):
            self._emit_all(changes)
            await asyncio.sleep(0)
        self.listed, self._emitting = True, False
        self._completed()

    def _emit_all(self, changes: Iterable[Change[T]]) -> None:
        for change in changes:
            self._emit(change)

    def _skip(self, skip: Skip) -> None:
        self._instruments.decode_failed(self._resource.name)
        meta = skip.meta or ObjectMeta()
        logged = self._logged_versions.get(meta.key)
        if logged == meta.resource_version or (logged is None and len(self._logged_versions) >= MAX_LOGGED_OBJECTS):
            return
        self._logged_versions[meta.key] = meta.resource_version
        log.error(
            f"object cannot be decoded, {'using its metadata' if skip.partial else 'skipped'}",
            **self._labels,
            namespace=meta.namespace,
            name=meta.name,
            version=meta.resource_version,
            why=skip.why,
        )

    def _progress(self) -> None:
        self._last_progress = asyncio.get_running_loop().time()
        self._instruments.progress(self._resource.name)

    def _note_recovery(self) -> None:
        if self.waiting_for:
            log.info("following again", **self._labels, after=self.waiting_for)
            self.waiting_for, self.missing = "", False

    def _note_end(self, reason: str) -> None:
        self._ended = reason
        self._instruments.watch_ended(self._resource.name, reason=reason)
        if reason == "expired":
            log.info("watch expired, listing again", **self._labels)
