"""List, then watch, for ever: the state machine, and the small loop that runs it.

`advance` is the machine: a state and an input in, the next state and what to do about the cache out. It waits for
nothing, so every situation that a watch can get into is a row of a table, and a test without I/O.

    Streaming ──initial-events-end──→ Watching ←──────────── Waiting
        │                               │  ↑                    ↑
        │ not offered                   │  └─ clean end         │ failure: backoff, or Retry-After
        ↓                               ↓                       │
    Listing ──last page──→ Watching    410 ──→ Waiting ──→ Streaming or Listing

What it promises: the first list and every relist are consistent reads (resourceVersion unset, never "0"); the cache
never goes back in time (a list older than what the cache shows is not taken, an event that is not newer than the last
one is a replay and dropped); a watch that is silent for too long is over; nothing is tried again without a delay.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from informers.errors import ApiError, Gone, Invalid, NotFound, ServerTimeout, StatusError
from informers.meta import KubeObject, ObjectMeta, version_number
from informers.watch import Applied, Bookmark, Deleted, Event, Undecodable, WatchError

T = TypeVar("T", bound=KubeObject)

BRIEF_S = 1.0
"""A watch that ends sooner, without a single event, counts as a failure: or a broken server is asked in a hot loop."""

OLD_LIST_PAUSE_S = 1.0


# States


class Listing(Struct, frozen=True):
    """Reading a list, page by page. `token` continues one that was begun."""

    token: str = ""


class Streaming(Struct, frozen=True):
    """Reading a list as the beginning of a watch (`sendInitialEvents`)."""


class Watching(Struct, frozen=True):
    """Following what happens after `version`."""

    version: str


class Waiting(Struct, frozen=True):
    """Pausing before `then`: for the backoff's delay where `backoff`, and for `at_least_s` in any case.

    `missing` tells that the server does not know the resource.
    """

    then: Listing | Streaming | Watching
    why: str
    at_least_s: float = 0.0
    backoff: bool = True
    missing: bool = False


State: TypeAlias = Listing | Streaming | Watching | Waiting


# Inputs


class PageRead(Struct, Generic[T], frozen=True):
    """A page of a list. `token` is empty on the last one."""

    objects: tuple[T, ...]
    version: str
    token: str = ""
    undecodable: tuple[Undecodable, ...] = ()


class Ended(Struct, frozen=True):
    """The stream ended cleanly, after so many seconds and events."""

    after_s: float
    events: int


class Silent(Struct, frozen=True):
    """Nothing came for too long: the connection is dead, whatever TCP says."""


class Failed(Struct, frozen=True):
    error: ApiError


Input: TypeAlias = PageRead[T] | Event[T] | Ended | Silent | Failed


# Effects


class Collect(Struct, Generic[T], frozen=True):
    """Put these into the list that is being read."""

    objects: tuple[T, ...]


class Uncollect(Struct, Generic[T], frozen=True):
    object: T


class Discard(Struct, frozen=True):
    """Forget the list that is being read."""


class Commit(Struct, frozen=True):
    """The list is complete at this version: show it to readers."""

    version: str


class Apply(Struct, Generic[T], frozen=True):
    object: T


class Remove(Struct, Generic[T], frozen=True):
    object: T


class Advance(Struct, frozen=True):
    """Nothing changed up to this version."""

    version: str


class Skip(Struct, frozen=True):
    """An object that cannot be decoded: counted and named; the last state that could be decoded stays."""

    why: str
    meta: ObjectMeta | None


class GiveUpStreaming(Struct, frozen=True):
    """This server offers no streaming lists: do not ask again."""


Effect: TypeAlias = (
    Collect[T] | Uncollect[T] | Discard | Commit | Apply[T] | Remove[T] | Advance | Skip | GiveUpStreaming
)
Step: TypeAlias = tuple[State, tuple[Effect[T], ...]]


def advance(state: State, event: Input[T], *, relist: Listing | Streaming, held: str) -> Step[T]:
    """The machine. `relist` is how to list anew, `held` the version that the cache shows ("" before the first list)."""
    match state:
        case Listing():
            return _listing(state, event, held=held)
        case Streaming():
            return _streaming(event, held=held)
        case Watching():
            return _watching(state, event, relist=relist)
        case Waiting():
            return state, ()


def _listing(state: Listing, event: Input[T], *, held: str) -> Step[T]:
    match event:
        case PageRead(token=token) if token:
            return Listing(token), _collected(event)
        case PageRead(version=version):
            if _is_older(version, held):
                return _wait_for_newer(Listing())
            return Watching(version), (*_collected(event), Commit(version))
        case Failed(error=Gone()) if state.token:
            return Listing(), (Discard(),)
        case Failed(error=error):
            return _pause(Listing(), error), (Discard(),)
        case _:
            return state, ()


def _streaming(event: Input[T], *, held: str) -> Step[T]:
    match event:
        case Applied(object=obj):
            return Streaming(), (Collect((obj,)),)
        case Deleted(object=obj):
            return Streaming(), (Uncollect(obj),)
        case Bookmark(version=version, initial_end=True):
            if _is_older(version, held):
                return _wait_for_newer(Streaming())
            return Watching(version), (Commit(version),)
        case Undecodable(why=why, meta=meta):
            return Streaming(), (Skip(why, meta),)
        case Failed(error=StatusError() as error) if error.code == 400 or isinstance(error, Invalid):
            return Listing(), (Discard(), GiveUpStreaming())
        case WatchError():
            # A server that accepts the parameter and cannot serve it says so inside the stream.
            return Listing(), (Discard(), GiveUpStreaming())
        case Failed(error=error):
            return _pause(Streaming(), error), (Discard(),)
        case Ended() | Silent():
            return Waiting(Listing(), why="a streaming list ended before its end"), (Discard(),)
        case _:
            return Streaming(), ()


def _watching(state: Watching, event: Input[T], *, relist: Listing | Streaming) -> Step[T]:
    match event:
        case Applied(object=obj) | Deleted(object=obj):
            return _followed(state, event, obj.metadata.resource_version)
        case Bookmark(version=version):
            newer = not _is_older(version, state.version)
            return (Watching(version), (Advance(version),)) if newer else (state, ())
        case Undecodable(why=why, meta=meta):
            version = meta.resource_version if meta and meta.resource_version else state.version
            return Watching(max_version(version, state.version)), (Skip(why, meta),)
        case Ended(after_s=after_s, events=events):
            if after_s < BRIEF_S and not events:
                return Waiting(state, why="the watch ended as soon as it began"), ()
            return state, ()
        case Silent():
            return state, ()
        case WatchError(error=error) | Failed(error=error):
            return _after_failure(state, error, in_stream=isinstance(event, WatchError), relist=relist), ()
        case _:
            return state, ()


def _followed(state: Watching, event: Applied[T] | Deleted[T], version: str) -> Step[T]:
    seen, new = version_number(state.version), version_number(version)
    if seen is not None and new is not None and new <= seen:
        return state, ()
    effect: Effect[T] = Apply(event.object) if isinstance(event, Applied) else Remove(event.object)
    return Watching(version), (effect,)


def _after_failure(state: Watching, error: ApiError, *, in_stream: bool, relist: Listing | Streaming) -> State:
    """Go on from where it was, unless that is impossible."""
    if isinstance(error, Gone | NotFound):
        return _pause(relist, error)
    if isinstance(error, ServerTimeout) and error.version_too_large:
        return _pause(state, error)
    passing = not in_stream or (isinstance(error, StatusError) and error.code in (429, 503, 504))
    return _pause(state if passing else relist, error)


def _pause(then: Listing | Streaming | Watching, error: ApiError) -> Waiting:
    floor = error.retry_after_s if isinstance(error, StatusError) else None
    return Waiting(then, why=str(error), at_least_s=floor or 0.0, missing=isinstance(error, NotFound))


def _wait_for_newer(then: Listing | Streaming) -> Step[T]:
    why = "the list is older than what the cache shows"
    return Waiting(then, why=why, at_least_s=OLD_LIST_PAUSE_S, backoff=False), (Discard(),)


def _collected(page: PageRead[T]) -> tuple[Effect[T], ...]:
    return (Collect(page.objects), *(Skip(skipped.why, skipped.meta) for skipped in page.undecodable))


def _is_older(version: str, held: str) -> bool:
    new, old = version_number(version), version_number(held)
    return new is not None and old is not None and new < old


def max_version(one: str, other: str) -> str:
    """The later of two versions; the first where they cannot be compared."""
    return other if _is_older(one, other) else one
