"""The state machine of the reflector: list, then watch, and list again if necessary.

`advance` takes a state and an input. It returns the next state and the effects on the cache. It does no I/O, so a test
can cover every situation of a watch with one row of a table. `informers.reflector` runs the machine.

    Streaming ──initial-events-end──→ Watching ←──────────── Waiting
        │                               │  ↑                    ↑
        │ not offered                   │  └─ clean end         │ failure: backoff, or Retry-After
        ↓                               ↓                       │
    Listing ──last page──→ Watching    410 ──→ Waiting ──→ Streaming or Listing

Promises of the machine:

- Every list is a consistent read: resourceVersion is unset, never "0".
- The cache never goes back in time. A list that is older than the cache is refused. An event that is not newer than the
  last event is a replay and is ignored.
- A watch without data for too long is closed.
- After an error, the same request is repeated only after a delay.
- An object that cannot be decoded is skipped. The cache keeps its last state until a version that can be decoded or the
  deletion arrives.
- If the server no longer serves the resource, the cache keeps its contents. Real deletions arrive as events before the
  resource definition is removed. A 404 alone does not prove that the objects are gone.
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

SHORTEST_WATCH_S = 1.0
"""A watch that ends sooner counts as a failure and is delayed. Otherwise a broken server would cause a hot loop."""

OLD_LIST_PAUSE_S = 1.0
TOO_NEW_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
"""A longer Retry-After is shortened to this, because a gateway must not stop the controller for a day."""


# States


class Listing(Struct, frozen=True):
    """Reading a list, page by page. `token` is the continue token of the next page, or "" for the first page."""

    token: str = ""


class Streaming(Struct, frozen=True):
    """Reading a streaming list: the list arrives as the first events of a watch (`sendInitialEvents`)."""


class Watching(Struct, frozen=True):
    """Watching the changes after `version`."""

    version: str


class Waiting(Struct, frozen=True):
    """A delay before the state `then`: at least `at_least_s`, and if `backoff` also at least the backoff's delay.

    `cheap` means that the failure and a retry cost the server almost nothing. Such failures have a separate backoff
    with short delays, so the reflector soon notices that the server is back. They do not lengthen the delay before a
    new list.

    `why` is the reason for users. It is empty if the reason is normal, such as an expired version. `missing` means that
    the server does not serve the resource.
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
    """A page of a list was read. `token` is the continue token; it is empty on the last page."""

    objects: tuple[T, ...]
    version: str
    token: str = ""
    undecodable: tuple[Undecodable, ...] = ()


class Ended(Struct, frozen=True):
    """The server ended the stream without an error, `after_s` seconds after the stream began."""

    after_s: float


class Silent(Struct, frozen=True):
    """No data arrived for too long, so the connection counts as dead."""


class Failed(Struct, frozen=True):
    error: ApiError


Input: TypeAlias = PageRead[T] | Event[T] | Ended | Silent | Failed


# Effects


class Collect(Struct, Generic[T], frozen=True):
    """Add objects to the list that is being read."""

    objects: tuple[T, ...]


class Uncollect(Struct, frozen=True):
    """Remove an object from the list that is being read."""

    meta: ObjectMeta


class Keep(Struct, frozen=True):
    """Keep the cached state of this object, because the list has it in a version that cannot be decoded."""

    meta: ObjectMeta


class Discard(Struct, frozen=True):
    """Discard the list that is being read."""


class Commit(Struct, frozen=True):
    """The list is complete at this version. Show it to readers."""

    version: str


class Apply(Struct, Generic[T], frozen=True):
    object: T


class Remove(Struct, Generic[T], frozen=True):
    object: T


class Drop(Struct, frozen=True):
    """Remove an object whose last state could not be decoded."""

    meta: ObjectMeta


class Advance(Struct, frozen=True):
    """Record that the cache is up to date at this version."""

    version: str


class Skip(Struct, frozen=True):
    """Count and log an object that cannot be decoded. The cache keeps its last decoded state."""

    why: str
    meta: ObjectMeta | None


class GiveUpStreaming(Struct, frozen=True):
    """The server does not support streaming lists. Use paged lists from now on."""


QuickEffect: TypeAlias = (
    Collect[T] | Uncollect | Keep | Discard | Apply[T] | Remove[T] | Drop | Advance | Skip | GiveUpStreaming
)
Effect: TypeAlias = QuickEffect[T] | Commit
"""Every effect. Only Commit can take long, because it compares a long list with the old one."""

Step: TypeAlias = tuple[State, tuple[Effect[T], ...]]


def advance(state: State, event: Input[T], *, relist: Listing | Streaming, cached: str) -> Step[T]:
    """Return the next state and the effects of an input.

    `relist` is the state that starts a new list. `cached` is the version of the cache, "" before the first list.
    """
    match state:
        case Listing():
            return _listing(state, event, cached=cached)
        case Streaming():
            return _streaming(event, cached=cached)
        case Watching():
            return _watching(state, event, relist=relist)
        case Waiting():
            return state, ()


def _listing(state: Listing, event: Input[T], *, cached: str) -> Step[T]:
    match event:
        case PageRead(token=token) if token:
            return Listing(token), _collected(event)
        case PageRead(version=""):
            return Waiting(Listing(), why="the list has no resourceVersion"), (Discard(),)
        case PageRead(version=version):
            if _is_older(version, cached):
                return _wait_for_newer(Listing())
            return Watching(version), (*_collected(event), Commit(version))
        case Failed(error=error) if state.token and _is_transient(error):
            # The pages read so far are still valid. Read the failed page again while its token is valid.
            return _pause(state, error), ()
        case Failed(error=error):
            return _pause(Listing(), error), (Discard(),)
        case _:
            return state, ()


def _streaming(event: Input[T], *, cached: str) -> Step[T]:
    match event:
        case Applied(object=obj):
            return Streaming(), (Collect((obj,)),)
        case Deleted(object=obj):
            return Streaming(), (Uncollect(obj.metadata),)
        case Undecodable(meta=ObjectMeta() as meta, deleted=True):
            return Streaming(), (Uncollect(meta),)
        case Undecodable():
            return Streaming(), _skipped(event)
        case Bookmark(version=version, initial_end=True) if version:
            if _is_older(version, cached):
                return _wait_for_newer(Streaming())
            return Watching(version), (Commit(version),)
        case Bookmark():
            # A bookmark before the end of the list shows that this server ignored the unknown parameter.
            return Listing(), (Discard(), GiveUpStreaming())
        case Failed(error=error) | WatchError(error=error):
            return _after_streaming(error, in_stream=isinstance(event, WatchError))
        case Ended() | Silent():
            return Waiting(Listing(), why="the watch ended before the streaming list was complete"), (Discard(),)
        case _:
            return Streaming(), ()


def _after_streaming(error: ApiError, *, in_stream: bool) -> Step[T]:
    """Choose the next state after a failed streaming list.

    If the server was not reached or refused the request for now, try a streaming list again. Otherwise use paged lists:
    a paged list does not lose the pages that it has read.
    """
    match error:
        case Unauthorized() | Forbidden() | NotFound() | Gone() | TooManyRequests() | TransportError(sent=False):
            return _pause(Streaming(), error), (Discard(),)
        case TransportError():
            return _pause(Listing(), error), (Discard(),)
        case ServerError(code=code) if not in_stream or code in {503, 504}:
            return _pause(Listing(), error), (Discard(),)
        case _:
            # A server without streaming lists rejects the parameter in its answer or with an ERROR event.
            return Listing(), (Discard(), GiveUpStreaming())


def _watching(state: Watching, event: Input[T], *, relist: Listing | Streaming) -> Step[T]:
    match event:
        case Applied(object=obj) | Deleted(object=obj):
            if _is_replay(obj.metadata, state):
                return state, ()
            effect: Effect[T] = Apply(obj) if isinstance(event, Applied) else Remove(obj)
            return _watching_from(obj.metadata.resource_version, state), (effect,)
        case Bookmark(version=version):
            newer = version != "" and not _is_older(version, state.version)
            return (Watching(version), (Advance(version),)) if newer else (state, ())
        case Undecodable(why=why, meta=None):
            return state, (Skip(why, None),)
        case Undecodable(why=why, meta=ObjectMeta() as meta, deleted=deleted):
            if _is_replay(meta, state):
                return state, ()
            return _watching_from(meta.resource_version, state), (Drop(meta) if deleted else Skip(why, meta),)
        case Ended(after_s=after_s) if after_s < SHORTEST_WATCH_S:
            return Waiting(state, why="the watch ended immediately after its start"), ()
        case Failed(error=error) | WatchError(error=error):
            return _after_watching(state, error, in_stream=isinstance(event, WatchError), relist=relist), ()
        case _:
            return state, ()


def _after_watching(state: Watching, error: ApiError, *, in_stream: bool, relist: Listing | Streaming) -> State:
    """Resume the watch from its last version if the error allows it. Otherwise list again."""
    if isinstance(error, ServerTimeout) and error.version_too_large:
        # The server is behind the cache. It will reach this version soon.
        return Waiting(state, why=str(error), at_least_s=_retry_after(error) or TOO_NEW_PAUSE_S, backoff=False)
    if in_stream:
        may_resume = isinstance(error, StatusError) and error.code in {429, 503, 504}
    else:
        may_resume = _is_transient(error) or (isinstance(error, StatusError) and error.code in {401, 403})
    return _pause(state if may_resume else relist, error)


def _is_transient(error: ApiError) -> bool:
    """True if the same request may succeed a little later, because the error is not about the request."""
    return isinstance(error, TransportError | TooManyRequests | ServerError)


def _pause(then: Listing | Streaming | Watching, error: ApiError) -> Waiting:
    why = "" if isinstance(error, Gone) else str(error)
    missing = isinstance(error, NotFound)
    return Waiting(then, why=why, at_least_s=_retry_after(error), cheap=_is_cheap(then, error), missing=missing)


def _is_cheap(then: Listing | Streaming | Watching, error: ApiError) -> bool:
    """True if the server was not reached, or if the retry only resumes a watch."""
    if isinstance(error, TransportError) and not error.sent:
        return True
    return isinstance(then, Watching) and isinstance(error, TransportError | ServerError)


def _retry_after(error: ApiError) -> float:
    wait_s = error.retry_after_s if isinstance(error, StatusError) else None
    return min(wait_s or 0.0, LONGEST_PAUSE_S)


def _wait_for_newer(then: Listing | Streaming) -> Step[T]:
    why = "the list is older than the cache"
    return Waiting(then, why=why, at_least_s=OLD_LIST_PAUSE_S, backoff=False), (Discard(),)


def _collected(page: PageRead[T]) -> tuple[Effect[T], ...]:
    return (Collect(page.objects), *(effect for event in page.undecodable for effect in _skipped(event)))


def _skipped(event: Undecodable) -> tuple[Skip | Keep, ...]:
    meta = event.meta
    return (Skip(event.why, meta),) if meta is None else (Skip(event.why, meta), Keep(meta))


def _is_replay(meta: ObjectMeta, state: Watching) -> bool:
    new, seen = version_number(meta.resource_version), version_number(state.version)
    return new is not None and seen is not None and new <= seen


def _watching_from(version: str, state: Watching) -> Watching:
    return Watching(version) if version else state


def _is_older(version: str, cached: str) -> bool:
    new, old = version_number(version), version_number(cached)
    return new is not None and old is not None and new < old
