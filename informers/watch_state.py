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
one is a replay and dropped); a watch that is silent for too long is over; after a failure nothing is tried again
without a delay. An object that cannot be decoded is passed over: what the cache shows of it stays as it was, until a
version comes that can be read, or its deletion. A resource that vanishes keeps its last state in the cache too: its
deletions arrive as events before the definition goes, and a 404 alone proves nothing about objects.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from informers.errors import (
    ApiError,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    ServerTimeout,
    StatusError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from informers.meta import KubeObject, ObjectMeta, version_number
from informers.watch import Applied, Bookmark, Deleted, Event, Undecodable, WatchError

T = TypeVar("T", bound=KubeObject)

BRIEF_S = 1.0
"""A watch that ends sooner counts as a failure: or a broken server is asked in a hot loop."""

OLD_LIST_PAUSE_S = 1.0
TOO_NEW_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
"""What a Retry-After is good for at most: a gateway's "tomorrow" must not stop a controller for a day."""


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

    `cheap`: the failure cost the server next to nothing, and so does trying again. Such failures have a backoff of
    their own, which stays short, so that a server that comes back is soon followed again; and what may have to follow
    then, a new list, does not have to pay for them.

    `why` is for people, and empty where it is no news: an expired version is a server's good right. `missing` tells
    that the server does not know the resource.
    """

    then: Listing | Streaming | Watching
    why: str
    at_least_s: float = 0.0
    backoff: bool = True
    cheap: bool = False
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
    """The stream ended cleanly, so many seconds after it began."""

    after_s: float


class Silent(Struct, frozen=True):
    """Nothing came for too long: the connection is dead, whatever TCP says."""


class Failed(Struct, frozen=True):
    error: ApiError


Input: TypeAlias = PageRead[T] | Event[T] | Ended | Silent | Failed


# Effects


class Collect(Struct, Generic[T], frozen=True):
    """Put these into the list that is being read."""

    objects: tuple[T, ...]


class Uncollect(Struct, frozen=True):
    meta: ObjectMeta


class Keep(Struct, frozen=True):
    """The list that is being read has this object, in a version that cannot be decoded."""

    meta: ObjectMeta


class Discard(Struct, frozen=True):
    """Forget the list that is being read."""


class Commit(Struct, frozen=True):
    """The list is complete at this version: show it to readers."""

    version: str


class Apply(Struct, Generic[T], frozen=True):
    object: T


class Remove(Struct, Generic[T], frozen=True):
    object: T


class Drop(Struct, frozen=True):
    """Remove an object whose last state could not be decoded."""

    meta: ObjectMeta


class Advance(Struct, frozen=True):
    """Nothing changed up to this version."""

    version: str


class Skip(Struct, frozen=True):
    """An object that cannot be decoded: counted and named; the last state that could be decoded stays."""

    why: str
    meta: ObjectMeta | None


class GiveUpStreaming(Struct, frozen=True):
    """This server offers no streaming lists: do not ask again."""


QuickEffect: TypeAlias = (
    Collect[T] | Uncollect | Keep | Discard | Apply[T] | Remove[T] | Drop | Advance | Skip | GiveUpStreaming
)
Effect: TypeAlias = QuickEffect[T] | Commit
"""A commit alone may take long, with a long list."""

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
        case PageRead(version=""):
            return Waiting(Listing(), why="the list has no resourceVersion"), (Discard(),)
        case PageRead(version=version):
            if _is_older(version, held):
                return _wait_for_newer(Listing())
            return Watching(version), (*_collected(event), Commit(version))
        case Failed(error=error) if state.token and _is_passing(error):
            # What was read so far is as good as before: go on with the page that failed, while its token lasts.
            return _pause(state, error), ()
        case Failed(error=error):
            return _pause(Listing(), error), (Discard(),)
        case _:
            return state, ()


def _streaming(event: Input[T], *, held: str) -> Step[T]:
    match event:
        case Applied(object=obj):
            return Streaming(), (Collect((obj,)),)
        case Deleted(object=obj):
            return Streaming(), (Uncollect(obj.metadata),)
        case Undecodable(meta=ObjectMeta() as meta, deleted=True):
            return Streaming(), (Uncollect(meta),)
        case Undecodable():
            return Streaming(), _passed_over(event)
        case Bookmark(version=version, initial_end=True) if version:
            if _is_older(version, held):
                return _wait_for_newer(Streaming())
            return Watching(version), (Commit(version),)
        case Bookmark():
            # A bookmark before the list's end: this server passed over a parameter that it does not know.
            return Listing(), (Discard(), GiveUpStreaming())
        case Failed(error=error) | WatchError(error=error):
            return _after_streaming(error, in_stream=isinstance(event, WatchError))
        case Ended() | Silent():
            return Waiting(Listing(), why="a streaming list ended before its end"), (Discard(),)
        case _:
            return Streaming(), ()


def _after_streaming(error: ApiError, *, in_stream: bool) -> Step[T]:
    """Stream again where that may help, and list by pages where it may not: pages always get somewhere."""
    match error:
        case Unauthorized() | Forbidden() | NotFound() | Gone() | TooManyRequests() | TransportError(sent=False):
            return _pause(Streaming(), error), (Discard(),)
        case TransportError():
            return _pause(Listing(), error), (Discard(),)
        case ServerError(code=code) if not in_stream or code in {503, 504}:
            return _pause(Listing(), error), (Discard(),)
        case _:
            # A server without streaming lists refuses the parameter, at once or, taking it, inside the stream.
            return Listing(), (Discard(), GiveUpStreaming())


def _watching(state: Watching, event: Input[T], *, relist: Listing | Streaming) -> Step[T]:
    match event:
        case Applied(object=obj) | Deleted(object=obj):
            if _is_replay(obj.metadata, state):
                return state, ()
            effect: Effect[T] = Apply(obj) if isinstance(event, Applied) else Remove(obj)
            return _at(obj.metadata.resource_version, state), (effect,)
        case Bookmark(version=version):
            newer = version != "" and not _is_older(version, state.version)
            return (Watching(version), (Advance(version),)) if newer else (state, ())
        case Undecodable(why=why, meta=None):
            return state, (Skip(why, None),)
        case Undecodable(why=why, meta=ObjectMeta() as meta, deleted=deleted):
            if _is_replay(meta, state):
                return state, ()
            return _at(meta.resource_version, state), (Drop(meta) if deleted else Skip(why, meta),)
        case Ended(after_s=after_s) if after_s < BRIEF_S:
            return Waiting(state, why="the watch ended as soon as it began"), ()
        case Failed(error=error) | WatchError(error=error):
            return _after_watching(state, error, in_stream=isinstance(event, WatchError), relist=relist), ()
        case _:
            return state, ()


def _after_watching(state: Watching, error: ApiError, *, in_stream: bool, relist: Listing | Streaming) -> State:
    """Go on from where it was, unless that is impossible."""
    if isinstance(error, ServerTimeout) and error.version_too_large:
        # The server lags behind what we know already: it will be there in a moment.
        return Waiting(state, why=str(error), at_least_s=_floor(error) or TOO_NEW_PAUSE_S, backoff=False)
    if in_stream:
        may_resume = isinstance(error, StatusError) and error.code in {429, 503, 504}
    else:
        may_resume = _is_passing(error) or (isinstance(error, StatusError) and error.code in {401, 403})
    return _pause(state if may_resume else relist, error)


def _is_passing(error: ApiError) -> bool:
    """Whether it says nothing about what was asked for: the same request may well succeed a little later."""
    return isinstance(error, TransportError | TooManyRequests | ServerError)


def _pause(then: Listing | Streaming | Watching, error: ApiError) -> Waiting:
    why = "" if isinstance(error, Gone) else str(error)
    missing = isinstance(error, NotFound)
    return Waiting(then, why=why, at_least_s=_floor(error), cheap=_is_cheap(then, error), missing=missing)


def _is_cheap(then: Listing | Streaming | Watching, error: ApiError) -> bool:
    """Whether the server was not even reached, or only has to go on with a watch."""
    if isinstance(error, TransportError) and not error.sent:
        return True
    return isinstance(then, Watching) and isinstance(error, TransportError | ServerError)


def _floor(error: ApiError) -> float:
    wait_s = error.retry_after_s if isinstance(error, StatusError) else None
    return min(wait_s or 0.0, LONGEST_PAUSE_S)


def _wait_for_newer(then: Listing | Streaming) -> Step[T]:
    why = "the list is older than what the cache shows"
    return Waiting(then, why=why, at_least_s=OLD_LIST_PAUSE_S, backoff=False), (Discard(),)


def _collected(page: PageRead[T]) -> tuple[Effect[T], ...]:
    return (Collect(page.objects), *(effect for skipped in page.undecodable for effect in _passed_over(skipped)))


def _passed_over(skipped: Undecodable) -> tuple[Skip | Keep, ...]:
    meta = skipped.meta
    return (Skip(skipped.why, meta),) if meta is None else (Skip(skipped.why, meta), Keep(meta))


def _is_replay(meta: ObjectMeta, state: Watching) -> bool:
    new, seen = version_number(meta.resource_version), version_number(state.version)
    return new is not None and seen is not None and new <= seen


def _at(version: str, state: Watching) -> Watching:
    return Watching(version) if version else state


def _is_older(version: str, held: str) -> bool:
    new, old = version_number(version), version_number(held)
    return new is not None and old is not None and new < old
