"""The state machine of the reflector. The reflector lists, then watches, and lists again if necessary.

Each state has a function with its name. The function takes the state and an input, and returns the next state and the
effects on the cache. It does no I/O, so a test can cover every situation of a watch with one row of a table. Its type
names all inputs that the state can get, and it has a case for each. `informers.watch.reflector` runs the machine.

    Streaming ──initial-events-end──→ Watching ←──────────── Waiting
        │                               │  ↑                    ↑
        │ not offered                   │  └─ clean end         │ failure: backoff, or Retry-After
        ↓                               ↓                       │
    Listing ──last page──→ Watching    410 ──→ Waiting ──→ Streaming or Listing

The section "Reflector" of docs/informers.md lists the promises of the machine. If the server no longer serves the
resource, the cache keeps its contents. An answer 404 does not prove the deletion of the objects: if they are deleted,
the server sends the deletion events before it stops serving the resource.
"""

from typing import Any, TypeAlias, TypeVar, assert_never

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
    is_transient,
    is_unreachable,
    requested_delay_s,
)
from informers.meta import KubeObject, ObjectMeta, is_older, version_number
from informers.watch.effects import (
    Advance,
    Apply,
    Collect,
    Commit,
    GiveUpStreaming,
    Keep,
    ListEffect,
    Remove,
    Skip,
    Uncollect,
    WatchEffect,
)
from informers.watch.parser import Applied, Bookmark, Deleted, Event, PageRead, Undecodable, WatchError

T = TypeVar("T", bound=KubeObject)

SHORTEST_WATCH_S = 1.0
"""After a watch that was shorter than this time, the next one starts after a delay, against a broken server."""

OLD_LIST_PAUSE_S = 1.0
OLD_LISTS = 5
"""After this number of lists in a row that are older than the cache, the next list replaces its objects."""

TOO_NEW_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
"""The longest delay because of a Retry-After in seconds, so that a wrong gateway does not stop a controller."""


# States


class Listing(Struct, frozen=True):
    """Reads the page `token` of a list, or the first. `older` lists in a row were older than the cache."""

    token: str = ""
    older: int = 0


class Streaming(Struct, frozen=True):
    """The first events of a watch contain the list (`sendInitialEvents`). For `older`, see `Listing`."""

    older: int = 0


class Watching(Struct, frozen=True):
    version: str


class Checking(Struct, frozen=True):
    """Reads a list of one object. If it is older than `version`, the server has gone back in time."""

    version: str


class Waiting(Struct, frozen=True):
    """Waits at least `at_least_s`, and with `backoff` for that of the reflector, before the state `then`.

    `cheap` is True if the failure and a retry cost the server almost nothing: a separate backoff has short delays.

    `why` is the reason for users, or "" if it is normal. `missing` is True if the server does not serve the resource.
    """

    then: Listing | Streaming | Watching | Checking
    why: str
    at_least_s: float = 0.0
    backoff: bool = True
    cheap: bool = False
    missing: bool = False


State: TypeAlias = Listing | Streaming | Watching | Checking | Waiting


# Inputs


class Ended(Struct, frozen=True):
    """The server ended the stream without an error, `after_s` seconds after the stream began."""

    after_s: float


class Silent(Struct, frozen=True):
    """No data arrived for too long, so the reflector closed the watch."""


class Failed(Struct, frozen=True):
    error: ApiError


PageInput: TypeAlias = PageRead[T] | Failed
StreamInput: TypeAlias = Event[T] | Ended | Silent | Failed


ListStep: TypeAlias = tuple[State, tuple[ListEffect[T], ...]]
WatchStep: TypeAlias = tuple[State, tuple[WatchEffect[T], ...]]


def begins_list(state: State) -> bool:
    """Return True if the reflector has read nothing yet of the list that it reads next."""
    then = state.then if isinstance(state, Waiting) else state
    return isinstance(then, Streaming) or (isinstance(then, Listing) and not then.token)


def listing(state: Listing, event: PageInput[T], *, cached: str) -> ListStep[T]:
    """`cached` is the resourceVersion of the cache, or "" before the first list."""
    match event:
        case PageRead(token=token) if token:
            return Listing(token, state.older), _collected(event)
        case PageRead(version=""):
            return Waiting(Listing(), why="the list has no resourceVersion"), ()
        case PageRead(version=version):
            return _completed(state, version, cached, _collected(event))
        case Failed(error=error) if state.token and is_transient(error):
            # The pages that were already read are still valid. Try to read the failed page again with the same token.
            return _pause(state, error), ()
        case Failed(error=error):
            return _pause(Listing(older=state.older), error), ()
        case _:
            assert_never(event)


def streaming(state: Streaming, event: StreamInput[T], *, cached: str) -> ListStep[T]:
    match event:
        case Applied(object=obj):
            return state, (Collect((obj,)),)
        case Deleted(object=obj):
            return state, (Uncollect(obj.metadata),)
        case Undecodable(meta=ObjectMeta() as meta, deleted=True):
            return state, (Uncollect(meta),)
        case Undecodable():
            return state, _skipped(event)
        case Bookmark(version=version, initial_end=True) if version:
            return _completed(state, version, cached)
        case Bookmark():
            # A server that supports streaming lists sends no other bookmark before the end of the list. So this server
            # ignored the parameter `sendInitialEvents`.
            return Listing(), (GiveUpStreaming(),)
        case Failed(error=error) | WatchError(error=error):
            return _after_streaming(error, in_stream=isinstance(event, WatchError))
        case Ended() | Silent():
            return Waiting(Listing(), why="the watch ended before the streaming list was complete"), ()
        case _:
            assert_never(event)


def _after_streaming(error: ApiError, *, in_stream: bool) -> ListStep[Any]:
    """Return the next state and the effects after a streaming list failed with `error`.

    `in_stream` is True if the error arrived in an ERROR event. There are three cases:

    - If no connection could be opened or the code is 401, 403, 404, 410 or 429, start a streaming list after a delay.
    - If an open connection was lost or the server failed, start a paged list after a delay. If the paged list fails
      too, the reflector repeats only the failed page. A streaming list would have to start again from its first
      object.
    - After any other error, use only paged lists from now on, because the server does not support streaming lists.
    """
    match error:
        case Unauthorized() | Forbidden() | NotFound() | Gone() | TooManyRequests() | TransportError(sent=False):
            return _pause(Streaming(), error), ()
        case TransportError():
            return _pause(Listing(), error), ()
        case ServerError(code=code) if not in_stream or code in {503, 504}:
            return _pause(Listing(), error), ()
        case _:
            # A server without streaming lists may reject the parameter `sendInitialEvents`. The rejection is an error
            # code or an ERROR event.
            return Listing(), (GiveUpStreaming(),)


def watching(state: Watching, event: StreamInput[T], *, relist: Listing | Streaming) -> WatchStep[T]:
    """`relist` is the state that starts a new list."""
    match event:
        case Applied(object=obj) | Deleted(object=obj):
            if _is_replay(obj.metadata, state):
                return state, ()
            effect: WatchEffect[T] = Apply(obj) if isinstance(event, Applied) else Remove(obj.metadata, obj)
            return _watching_from(obj.metadata.resource_version, state), (effect,)
        case Bookmark(version=version) if version and is_older(version, state.version):
            return Waiting(relist, why="a bookmark is older than the cache", at_least_s=OLD_LIST_PAUSE_S), ()
        case Bookmark(version=version):
            return (Watching(version), (Advance(version),)) if version else (state, ())
        case Silent():
            return Checking(state.version), ()
        case Undecodable(why=why, meta=meta):
            if meta is None:
                return state, (Skip(why, None),)
            if _is_replay(meta, state):
                return state, ()
            return _watching_from(meta.resource_version, state), _undecodable_change(event, meta)
        case Ended(after_s=after_s) if after_s < SHORTEST_WATCH_S:
            return Waiting(state, why="the watch ended immediately after its start"), ()
        case Ended():
            return state, ()
        case Failed(error=error) | WatchError(error=error):
            return _after_watching(state, error, in_stream=isinstance(event, WatchError), relist=relist), ()
        case _:
            assert_never(event)


def checking(state: Checking, event: PageInput[T], *, relist: Listing | Streaming) -> State:
    match event:
        case PageRead(version=version):
            return relist if is_older(version, state.version) else Watching(state.version)
        case Failed(error=error):
            return _pause(state, error)
        case _:
            assert_never(event)


def _after_watching(state: Watching, error: ApiError, *, in_stream: bool, relist: Listing | Streaming) -> State:
    """Watch on after a temporary error. Without a server, list again: a restored etcd reuses old versions."""
    if not in_stream and is_unreachable(error):
        return _pause(relist, error)
    if isinstance(error, ServerTimeout) and error.version_too_large:
        # The data of this server are older than the cache. Either they are soon up to date, or the server was restored.
        return Waiting(
            Checking(state.version), why=str(error), at_least_s=_retry_after(error) or TOO_NEW_PAUSE_S, backoff=False
        )
    if in_stream:
        may_resume = isinstance(error, StatusError) and error.code in {429, 503, 504}
    else:
        may_resume = is_transient(error) or (isinstance(error, StatusError) and error.code in {401, 403})
    return _pause(state if may_resume else relist, error)


def reason_of_end(event: StreamInput[Any]) -> str:
    """Return the reason for the end of a watch, as a label for `Instruments.watch_ended`. `event` is its last input."""
    match event:
        case Ended():
            return "end"
        case Silent():
            return "silent"
        case Failed(error=Gone()) | WatchError(error=Gone()):
            return "expired"
        case Failed(error=error) | WatchError(error=error):
            return type(error).__name__
        case _:
            return "restart"


def _pause(then: Listing | Streaming | Watching | Checking, error: ApiError) -> Waiting:
    why = "" if isinstance(error, Gone) else str(error)
    missing = isinstance(error, NotFound)
    return Waiting(then, why=why, at_least_s=_retry_after(error), cheap=_is_cheap(then, error), missing=missing)


def _is_cheap(then: Listing | Streaming | Watching | Checking, error: ApiError) -> bool:
    """Return True if a retry costs the server almost nothing: it was not reached, or the retry is no list."""
    if isinstance(error, TransportError) and not error.sent:
        return True
    return isinstance(then, Watching | Checking) and isinstance(error, TransportError | ServerError)


def _retry_after(error: ApiError) -> float:
    return requested_delay_s(error, longest_s=LONGEST_PAUSE_S)


def _completed(
    state: Listing | Streaming, version: str, cached: str, collected: tuple[ListEffect[T], ...] = ()
) -> ListStep[T]:
    is_old = is_older(version, cached)
    if is_old and state.older < OLD_LISTS:
        then = type(state)(older=state.older + 1)
        why = "the list is older than the cache"
        return Waiting(then, why=why, at_least_s=OLD_LIST_PAUSE_S, backoff=False), ()
    return Watching(version), (*collected, Commit(version, rewound=is_old))


def _collected(page: PageRead[T]) -> tuple[ListEffect[T], ...]:
    skipped = [effect for event in page.undecodable for effect in _skipped(event)]
    return (Collect(page.objects), *skipped)


def _skipped(event: Undecodable) -> tuple[Skip | Keep | Collect[Any], ...]:
    skip = Skip(event.why, event.meta, event.partial is not None)
    if event.partial is not None:
        return skip, Collect((event.partial,))
    return (skip,) if event.meta is None else (skip, Keep(event.meta))


def _undecodable_change(event: Undecodable, meta: ObjectMeta) -> tuple[WatchEffect[Any], ...]:
    if event.deleted:
        return (Remove(meta),)
    skip = Skip(event.why, meta, event.partial is not None)
    return (skip,) if event.partial is None else (skip, Apply(event.partial))


def _is_replay(meta: ObjectMeta, state: Watching) -> bool:
    new, seen = version_number(meta.resource_version), version_number(state.version)
    return new is not None and seen is not None and new <= seen


def _watching_from(version: str, state: Watching) -> Watching:
    return Watching(version) if version else state


MIN_WATCH_S, MAX_WATCH_S = 300, 600
"""The range of the random duration of a watch, in seconds, so that the watches of many clients end at different times.
"""


def watch_params(state: Streaming | Watching, chance: float) -> dict[str, str]:
    """Return the parameters of the watch for a state. `chance` in [0, 1) selects the duration of the watch."""
    timeout_s = MIN_WATCH_S + round(chance * (MAX_WATCH_S - MIN_WATCH_S))
    params = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
    if isinstance(state, Watching):
        return {**params, "resourceVersion": state.version}
    return {**params, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
