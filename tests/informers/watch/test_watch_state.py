"""The state machine of the reflector. Each row of the table is one situation."""

from functools import partial
from typing import NamedTuple, get_args, get_origin

import pytest

from informers.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    ServerTimeout,
    StatusError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from informers.meta import ObjectMeta
from informers.watch.effects import (
    Advance,
    Apply,
    Collect,
    Commit,
    Drop,
    GiveUpStreaming,
    Keep,
    ListEffect,
    Remove,
    Skip,
    Uncollect,
    WatchEffect,
)
from informers.watch.parser import Applied, Bookmark, Deleted, Undecodable, WatchError
from informers.watch.watch_state import (
    Checking,
    Ended,
    Failed,
    Listing,
    PageInput,
    PageRead,
    Silent,
    State,
    Streaming,
    StreamInput,
    Waiting,
    Watching,
    checking,
    listing,
    streaming,
    watching,
)
from tests.informers.subjects import ConfigMap, config_map

A5, A9 = config_map("a", 5), config_map("a", 9)
B6 = config_map("b", 6)
UNVERSIONED = ConfigMap(ObjectMeta(name="a", namespace="ns"))
META9 = ObjectMeta(name="bad", namespace="ns", resource_version="9")
PARTIAL9 = config_map("bad", 9)
META5 = ObjectMeta(name="bad", namespace="ns", resource_version="5")

REFUSED = TransportError("cannot connect", sent=False)
LOST = TransportError("broke", sent=True)
EXPIRED = Gone("too old", code=410)
NOT_SERVED = NotFound("not served", code=404)
FORBIDDEN = Forbidden("may not list", code=403)
UNAUTHORIZED = Unauthorized("who?", code=401)
BUSY = TooManyRequests("busy", code=429, retry_after_s=7)
DOWN = ServerError("down", code=503, retry_after_s=3)
CRASHED = ServerError("crashed", code=500)
BAD_REQUEST = StatusError("bad request", code=400)
TOO_NEW = ServerTimeout("too large", code=504, retry_after_s=2, causes=("ResourceVersionTooLarge",))
SLOW = ServerTimeout("slow", code=504)
NOT_SUPPORTED = Invalid("sendInitialEvents is forbidden", code=422)
LONG_RETRY_AFTER = ServerError("tomorrow", code=503, retry_after_s=86_400)

GIVE_UP = (GiveUpStreaming(),)


def after(error: ApiError, then: Listing | Streaming | Watching | Checking, *, at_least_s: float = 0.0) -> Waiting:
    return Waiting(then, why=str(error), at_least_s=at_least_s)


def cheap_after(
    error: ApiError, then: Listing | Streaming | Watching | Checking, *, at_least_s: float = 0.0
) -> Waiting:
    return Waiting(then, why=str(error), at_least_s=at_least_s, cheap=True)


class Row(NamedTuple):
    state: State
    event: PageInput[ConfigMap] | StreamInput[ConfigMap]
    next: State
    effects: tuple[ListEffect[ConfigMap] | WatchEffect[ConfigMap], ...] = ()
    cached: str = "8"


ROWS = {
    # A list by pages
    "a page that is not the last": Row(
        Listing(), PageRead((A5, B6), "9", "more"), Listing("more"), (Collect((A5, B6)),)
    ),
    "the last page": Row(Listing("more"), PageRead((A5,), "9"), Watching("9"), (Collect((A5,)), Commit("9"))),
    "an empty list": Row(Listing(), PageRead((), "9"), Watching("9"), (Collect(()), Commit("9"))),
    "the very first list": Row(Listing(), PageRead((), "1"), Watching("1"), (Collect(()), Commit("1")), cached=""),
    "a list as old as the cache": Row(Listing(), PageRead((), "8"), Watching("8"), (Collect(()), Commit("8"))),
    "a list older than the cache": Row(
        Listing(),
        PageRead((A5,), "7"),
        Waiting(Listing(older=1), why="the list is older than the cache", at_least_s=1.0, backoff=False),
    ),
    "the fifth list older than the cache": Row(
        Listing(older=4),
        PageRead((A5,), "7"),
        Waiting(Listing(older=5), why="the list is older than the cache", at_least_s=1.0, backoff=False),
    ),
    "the sixth list older than the cache": Row(
        Listing(older=5), PageRead((A5,), "7"), Watching("7"), (Collect((A5,)), Commit("7", rewound=True))
    ),
    "a newer list after older ones": Row(
        Listing(older=5), PageRead((A5,), "9"), Watching("9"), (Collect((A5,)), Commit("9"))
    ),
    "the first page of several after older lists": Row(
        Listing(older=5), PageRead((A5,), "7", "more"), Listing("more", older=5), (Collect((A5,)),)
    ),
    "a list without a version": Row(
        Listing(), PageRead((A5,), ""), Waiting(Listing(), why="the list has no resourceVersion")
    ),
    "an object of a page that cannot be decoded": Row(
        Listing(),
        PageRead((A5,), "9", "", (Undecodable("bad", META9),)),
        Watching("9"),
        (Collect((A5,)), Skip("bad", META9), Keep(META9), Commit("9")),
    ),
    "an object of a page with an unreadable field": Row(
        Listing(),
        PageRead((A5,), "9", "", (Undecodable("bad", META9, partial=PARTIAL9),)),
        Watching("9"),
        (Collect((A5,)), Skip("bad", META9, partial=True), Collect((PARTIAL9,)), Commit("9")),
    ),
    "an object of a page that cannot be identified": Row(
        Listing(), PageRead((), "9", "more", (Undecodable("bad"),)), Listing("more"), (Collect(()), Skip("bad", None))
    ),
    "page token expired": Row(Listing("more"), Failed(EXPIRED), Waiting(Listing(), why="")),
    "connection lost between pages": Row(Listing("more"), Failed(LOST), after(LOST, Listing("more"))),
    "server busy between pages": Row(Listing("more"), Failed(BUSY), after(BUSY, Listing("more"), at_least_s=7)),
    "resource not served between pages": Row(
        Listing("more"), Failed(NOT_SERVED), Waiting(Listing(), why=str(NOT_SERVED), missing=True)
    ),
    "list: connection refused": Row(Listing(), Failed(REFUSED), cheap_after(REFUSED, Listing())),
    "connection refused between pages": Row(Listing("more"), Failed(REFUSED), cheap_after(REFUSED, Listing("more"))),
    "list: server crashed": Row(Listing(), Failed(CRASHED), after(CRASHED, Listing())),
    "list forbidden": Row(Listing(), Failed(FORBIDDEN), after(FORBIDDEN, Listing())),
    "list of a resource that is not served": Row(
        Listing(), Failed(NOT_SERVED), Waiting(Listing(), why=str(NOT_SERVED), missing=True)
    ),
    "a Retry-After of a day": Row(
        Listing(), Failed(LONG_RETRY_AFTER), after(LONG_RETRY_AFTER, Listing(), at_least_s=300)
    ),
    # A streaming list
    "an object of a streaming list": Row(Streaming(), Applied(A5), Streaming(), (Collect((A5,)),)),
    "deleted during a streaming list": Row(Streaming(), Deleted(A9), Streaming(), (Uncollect(A9.metadata),)),
    "deleted during a streaming list, undecodable": Row(
        Streaming(), Undecodable("bad", META9, deleted=True), Streaming(), (Uncollect(META9),)
    ),
    "undecodable in a streaming list": Row(
        Streaming(), Undecodable("bad", META9), Streaming(), (Skip("bad", META9), Keep(META9))
    ),
    "an unreadable field in a streaming list": Row(
        Streaming(),
        Undecodable("bad", META9, partial=PARTIAL9),
        Streaming(),
        (Skip("bad", META9, partial=True), Collect((PARTIAL9,))),
    ),
    "the streaming list is complete": Row(Streaming(), Bookmark("9", initial_end=True), Watching("9"), (Commit("9"),)),
    "a streaming list older than the cache": Row(
        Streaming(),
        Bookmark("7", initial_end=True),
        Waiting(Streaming(older=1), why="the list is older than the cache", at_least_s=1.0, backoff=False),
    ),
    "the sixth streaming list older than the cache": Row(
        Streaming(older=5), Bookmark("7", initial_end=True), Watching("7"), (Commit("7", rewound=True),)
    ),
    "streaming lists are not supported": Row(Streaming(), Failed(NOT_SUPPORTED), Listing(), GIVE_UP),
    "the parameter is rejected": Row(Streaming(), Failed(BAD_REQUEST), Listing(), GIVE_UP),
    "the parameter is ignored": Row(Streaming(), Bookmark("9"), Listing(), GIVE_UP),
    "a streaming list ends with a server error": Row(Streaming(), WatchError(CRASHED), Listing(), GIVE_UP),
    "streaming list: connection refused": Row(Streaming(), Failed(REFUSED), cheap_after(REFUSED, Streaming())),
    "streaming list: connection lost": Row(Streaming(), Failed(LOST), after(LOST, Listing())),
    "streaming list: server crashed": Row(Streaming(), Failed(CRASHED), after(CRASHED, Listing())),
    "streaming list: server slow": Row(Streaming(), WatchError(SLOW), after(SLOW, Listing())),
    "streaming list: server busy": Row(Streaming(), Failed(BUSY), after(BUSY, Streaming(), at_least_s=7)),
    "streaming list: forbidden": Row(Streaming(), Failed(FORBIDDEN), after(FORBIDDEN, Streaming())),
    "streaming list: not served": Row(
        Streaming(), Failed(NOT_SERVED), Waiting(Streaming(), why=str(NOT_SERVED), missing=True)
    ),
    "streaming list: expired": Row(Streaming(), WatchError(EXPIRED), Waiting(Streaming(), why="")),
    "streaming list: ended early": Row(
        Streaming(),
        Ended(30),
        Waiting(Listing(), why="the watch ended before the streaming list was complete"),
    ),
    "streaming list: silent": Row(
        Streaming(), Silent(), Waiting(Listing(), why="the watch ended before the streaming list was complete")
    ),
    # A watch
    "an object was added or modified": Row(Watching("8"), Applied(A9), Watching("9"), (Apply(A9),)),
    "an object was deleted": Row(Watching("8"), Deleted(A9), Watching("9"), (Remove(A9),)),
    "an old event": Row(Watching("8"), Applied(A5), Watching("8")),
    "an old deletion": Row(Watching("8"), Deleted(A5), Watching("8")),
    "a repeated event": Row(Watching("9"), Deleted(A9), Watching("9")),
    "an object without a version": Row(Watching("8"), Applied(UNVERSIONED), Watching("8"), (Apply(UNVERSIONED),)),
    "bookmark": Row(Watching("8"), Bookmark("20"), Watching("20"), (Advance("20"),)),
    "an old bookmark": Row(
        Watching("8"), Bookmark("5"), Waiting(Streaming(), why="a bookmark is older than the cache", at_least_s=1.0)
    ),
    "a bookmark without a version": Row(Watching("8"), Bookmark(""), Watching("8")),
    "undecodable": Row(Watching("8"), Undecodable("bad", META9), Watching("9"), (Skip("bad", META9),)),
    "a field is unreadable": Row(
        Watching("8"),
        Undecodable("bad", META9, partial=PARTIAL9),
        Watching("9"),
        (Skip("bad", META9, partial=True), Apply(PARTIAL9)),
    ),
    "a field is unreadable, in an old event": Row(
        Watching("9"), Undecodable("bad", META9, partial=PARTIAL9), Watching("9")
    ),
    "undecodable and old": Row(Watching("8"), Undecodable("bad", META5), Watching("8")),
    "undecodable without an identity": Row(Watching("8"), Undecodable("bad"), Watching("8"), (Skip("bad", None),)),
    "an undecodable object was deleted": Row(
        Watching("8"), Undecodable("bad", META9, deleted=True), Watching("9"), (Drop(META9),)
    ),
    "clean end": Row(Watching("8"), Ended(400), Watching("8")),
    "ended immediately after its start": Row(
        Watching("8"), Ended(0.1), Waiting(Watching("8"), why="the watch ended immediately after its start")
    ),
    "silence": Row(Watching("8"), Silent(), Checking("8")),
    "after silence, the server has the version": Row(Checking("8"), PageRead((A9,), "9", "more"), Watching("8")),
    "after silence, the server has gone back": Row(Checking("8"), PageRead((A5,), "7", "more"), Streaming()),
    "after silence, no answer": Row(Checking("8"), Failed(REFUSED), cheap_after(REFUSED, Checking("8"))),
    "expired, in the stream": Row(Watching("8"), WatchError(EXPIRED), Waiting(Streaming(), why="")),
    "expired, in the answer": Row(Watching("8"), Failed(EXPIRED), Waiting(Streaming(), why="")),
    "version too large": Row(
        Watching("8"), Failed(TOO_NEW), Waiting(Checking("8"), why="too large", at_least_s=2, backoff=False)
    ),
    "version too large, in the stream": Row(
        Watching("8"), WatchError(TOO_NEW), Waiting(Checking("8"), why="too large", at_least_s=2, backoff=False)
    ),
    "version too large, without a hint": Row(
        Watching("8"),
        Failed(ServerTimeout("too large", code=504, causes=("ResourceVersionTooLarge",))),
        Waiting(Checking("8"), why="too large", at_least_s=1, backoff=False),
    ),
    "connection lost": Row(Watching("8"), Failed(LOST), cheap_after(LOST, Watching("8"))),
    "connection refused": Row(Watching("8"), Failed(REFUSED), cheap_after(REFUSED, Streaming())),
    "busy": Row(Watching("8"), Failed(BUSY), after(BUSY, Watching("8"), at_least_s=7)),
    "busy, in the stream": Row(Watching("8"), WatchError(BUSY), after(BUSY, Watching("8"), at_least_s=7)),
    "down": Row(Watching("8"), Failed(DOWN), after(DOWN, Streaming(), at_least_s=3)),
    "crashed": Row(Watching("8"), Failed(CRASHED), cheap_after(CRASHED, Watching("8"))),
    "down, in the stream": Row(Watching("8"), WatchError(DOWN), cheap_after(DOWN, Watching("8"), at_least_s=3)),
    "crashed, in the stream": Row(Watching("8"), WatchError(CRASHED), after(CRASHED, Streaming())),
    "some other error, in the stream": Row(
        Watching("8"), WatchError(Conflict("odd", code=409)), Waiting(Streaming(), why="odd")
    ),
    "permission removed": Row(Watching("8"), Failed(FORBIDDEN), after(FORBIDDEN, Watching("8"))),
    "token rejected": Row(Watching("8"), Failed(UNAUTHORIZED), after(UNAUTHORIZED, Watching("8"))),
    "version rejected": Row(Watching("8"), Failed(BAD_REQUEST), after(BAD_REQUEST, Streaming())),
    "definition removed": Row(
        Watching("8"), Failed(NOT_SERVED), Waiting(Streaming(), why=str(NOT_SERVED), missing=True)
    ),
}


STEPS = {
    Listing: (listing, PageInput),
    Streaming: (streaming, StreamInput),
    Watching: (partial(watching, relist=Streaming()), StreamInput),
    Checking: (partial(checking, relist=Streaming()), PageInput),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_step_returns_the_state_and_effects_of_the_row(row: Row):
    step, _ = STEPS[type(row.state)]
    cached = {"cached": row.cached} if isinstance(row.state, Listing | Streaming) else {}
    found = step(row.state, row.event, **cached)
    assert (found if isinstance(found, tuple) else (found, ())) == (row.next, row.effects)


def test_each_state_has_a_row_for_each_of_its_inputs():
    rows = {(type(row.state), type(row.event)) for row in ROWS.values()}
    inputs = {(state, get_origin(each) or each) for state, (_, union) in STEPS.items() for each in get_args(union)}
    assert rows == inputs


def test_a_server_without_streaming_lists_gets_paged_lists_from_then_on():
    state, _ = watching(Watching("8"), WatchError(EXPIRED), relist=Listing())
    assert state == Waiting(Listing(), why="")


def test_after_every_error_there_is_a_delay():
    failures = [row for row in ROWS.values() if isinstance(row.event, Failed | WatchError)]
    without_delay = [
        row for row in failures if not isinstance(row.next, Waiting) and GiveUpStreaming() not in row.effects
    ]
    assert without_delay == []
    assert all(row.next.backoff or row.next.at_least_s for row in failures if isinstance(row.next, Waiting))
