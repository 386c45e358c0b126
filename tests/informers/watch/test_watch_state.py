"""The state machine of the reflector. Each row of the table is one situation."""

from functools import partial
from typing import NamedTuple, get_args, get_origin

import pytest

from informers import errors
from informers.meta import ObjectMeta
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

REFUSED = errors.TransportError("cannot connect", sent=False)
LOST = errors.TransportError("broke", sent=True)
EXPIRED = errors.Gone("too old", code=410)
NOT_SERVED = errors.NotFound("not served", code=404)
FORBIDDEN = errors.Forbidden("may not list", code=403)
UNAUTHORIZED = errors.Unauthorized("who?", code=401)
BUSY = errors.TooManyRequests("busy", code=429, retry_after_s=7)
DOWN = errors.ServerError("down", code=503, retry_after_s=3)
CRASHED = errors.ServerError("crashed", code=500)
BAD_REQUEST = errors.StatusError("bad request", code=400)
TOO_NEW = errors.ServerTimeout("too large", code=504, retry_after_s=2, causes=("ResourceVersionTooLarge",))
SLOW = errors.ServerTimeout("slow", code=504)
NOT_SUPPORTED = errors.Invalid("sendInitialEvents is forbidden", code=422)
LONG_RETRY_AFTER = errors.ServerError("tomorrow", code=503, retry_after_s=86_400)

GIVE_UP = (GiveUpStreaming(),)


def after(
    error: errors.ApiError, then: Listing | Streaming | Watching | Checking, at_least_s: float = 0.0, **more: bool
) -> Waiting:
    return Waiting(then, why=str(error), at_least_s=at_least_s, **more)


cheap_after = partial(after, cheap=True)


class Row(NamedTuple):
    state: State
    event: PageInput[ConfigMap] | StreamInput[ConfigMap]
    next: State
    effects: tuple[ListEffect[ConfigMap] | WatchEffect[ConfigMap], ...] = ()
    cached: str = "8"


W8, W9, C8, MORE, LIST, STREAM = Watching("8"), Watching("9"), Checking("8"), Listing("more"), Listing(), Streaming()
INCOMPLETE = Waiting(LIST, why="the watch ended before the streaming list was complete")


def unserved(then: Listing | Streaming) -> Waiting:
    return Waiting(then, why=str(NOT_SERVED), missing=True)


def older(then: Listing | Streaming) -> Waiting:
    return Waiting(then, why="the list is older than the cache", at_least_s=1.0, backoff=False)


def too_large(at_least_s: float) -> Waiting:
    return Waiting(C8, why="too large", at_least_s=at_least_s, backoff=False)


ROWS = {
    # A list by pages
    "a page that is not the last": Row(LIST, PageRead((A5, B6), "9", "more"), MORE, (Collect((A5, B6)),)),
    "the last page": Row(MORE, PageRead((A5,), "9"), W9, (Collect((A5,)), Commit("9"))),
    "an empty list": Row(LIST, PageRead((), "9"), W9, (Collect(()), Commit("9"))),
    "the very first list": Row(LIST, PageRead((), "1"), Watching("1"), (Collect(()), Commit("1")), cached=""),
    "a list as old as the cache": Row(LIST, PageRead((), "8"), W8, (Collect(()), Commit("8"))),
    "a list older than the cache": Row(LIST, PageRead((A5,), "7"), older(Listing(older=1))),
    "the fifth list older than the cache": Row(Listing(older=4), PageRead((A5,), "7"), older(Listing(older=5))),
    "the sixth list older than the cache": Row(
        Listing(older=5), PageRead((A5,), "7"), Watching("7"), (Collect((A5,)), Commit("7", rewound=True))
    ),
    "a newer list after older ones": Row(Listing(older=5), PageRead((A5,), "9"), W9, (Collect((A5,)), Commit("9"))),
    "the first page of several after older lists": Row(
        Listing(older=5), PageRead((A5,), "7", "more"), Listing("more", older=5), (Collect((A5,)),)
    ),
    "a list without a version": Row(LIST, PageRead((A5,), ""), Waiting(LIST, why="the list has no resourceVersion")),
    "an object of a page that cannot be decoded": Row(
        LIST,
        PageRead((A5,), "9", "", (Undecodable("bad", META9),)),
        W9,
        (Collect((A5,)), Skip("bad", META9), Keep(META9), Commit("9")),
    ),
    "an object of a page with an unreadable field": Row(
        LIST,
        PageRead((A5,), "9", "", (Undecodable("bad", META9, partial=PARTIAL9),)),
        W9,
        (Collect((A5,)), Skip("bad", META9, partial=True), Collect((PARTIAL9,)), Commit("9")),
    ),
    "an object of a page that cannot be identified": Row(
        LIST, PageRead((), "9", "more", (Undecodable("bad"),)), MORE, (Collect(()), Skip("bad", None))
    ),
    "page token expired": Row(MORE, Failed(EXPIRED), Waiting(LIST, why="")),
    "connection lost between pages": Row(MORE, Failed(LOST), after(LOST, MORE)),
    "server busy between pages": Row(MORE, Failed(BUSY), after(BUSY, MORE, at_least_s=7)),
    "resource not served between pages": Row(MORE, Failed(NOT_SERVED), unserved(LIST)),
    "list: connection refused": Row(LIST, Failed(REFUSED), cheap_after(REFUSED, LIST)),
    "connection refused between pages": Row(MORE, Failed(REFUSED), cheap_after(REFUSED, MORE)),
    "list: server crashed": Row(LIST, Failed(CRASHED), after(CRASHED, LIST)),
    "list forbidden": Row(LIST, Failed(FORBIDDEN), after(FORBIDDEN, LIST)),
    "list of a resource that is not served": Row(LIST, Failed(NOT_SERVED), unserved(LIST)),
    "a Retry-After of a day": Row(LIST, Failed(LONG_RETRY_AFTER), after(LONG_RETRY_AFTER, LIST, at_least_s=300)),
    # A streaming list
    "an object of a streaming list": Row(STREAM, Applied(A5), STREAM, (Collect((A5,)),)),
    "deleted during a streaming list": Row(STREAM, Deleted(A9), STREAM, (Uncollect(A9.metadata),)),
    "deleted during a streaming list, undecodable": Row(
        STREAM, Undecodable("bad", META9, deleted=True), STREAM, (Uncollect(META9),)
    ),
    "undecodable in a streaming list": Row(
        STREAM, Undecodable("bad", META9), STREAM, (Skip("bad", META9), Keep(META9))
    ),
    "an unreadable field in a streaming list": Row(
        STREAM,
        Undecodable("bad", META9, partial=PARTIAL9),
        STREAM,
        (Skip("bad", META9, partial=True), Collect((PARTIAL9,))),
    ),
    "the streaming list is complete": Row(STREAM, Bookmark("9", initial_end=True), W9, (Commit("9"),)),
    "a streaming list older than the cache": Row(STREAM, Bookmark("7", initial_end=True), older(Streaming(older=1))),
    "the sixth streaming list older than the cache": Row(
        Streaming(older=5), Bookmark("7", initial_end=True), Watching("7"), (Commit("7", rewound=True),)
    ),
    "streaming lists are not supported": Row(STREAM, Failed(NOT_SUPPORTED), LIST, GIVE_UP),
    "the parameter is rejected": Row(STREAM, Failed(BAD_REQUEST), LIST, GIVE_UP),
    "the parameter is ignored": Row(STREAM, Bookmark("9"), LIST, GIVE_UP),
    "a streaming list ends with a server error": Row(STREAM, WatchError(CRASHED), LIST, GIVE_UP),
    "streaming list: connection refused": Row(STREAM, Failed(REFUSED), cheap_after(REFUSED, STREAM)),
    "streaming list: connection lost": Row(STREAM, Failed(LOST), after(LOST, LIST)),
    "streaming list: server crashed": Row(STREAM, Failed(CRASHED), after(CRASHED, LIST)),
    "streaming list: server slow": Row(STREAM, WatchError(SLOW), after(SLOW, LIST)),
    "streaming list: server busy": Row(STREAM, Failed(BUSY), after(BUSY, STREAM, at_least_s=7)),
    "streaming list: forbidden": Row(STREAM, Failed(FORBIDDEN), after(FORBIDDEN, STREAM)),
    "streaming list: not served": Row(STREAM, Failed(NOT_SERVED), unserved(STREAM)),
    "streaming list: expired": Row(STREAM, WatchError(EXPIRED), Waiting(STREAM, why="")),
    "streaming list: ended early": Row(STREAM, Ended(30), INCOMPLETE),
    "streaming list: silent": Row(STREAM, Silent(), INCOMPLETE),
    # A watch
    "an object was added or modified": Row(W8, Applied(A9), W9, (Apply(A9),)),
    "an object was deleted": Row(W8, Deleted(A9), W9, (Remove(A9.metadata, A9),)),
    "an old event": Row(W8, Applied(A5), W8),
    "an old deletion": Row(W8, Deleted(A5), W8),
    "a repeated event": Row(W9, Deleted(A9), W9),
    "an object without a version": Row(W8, Applied(UNVERSIONED), W8, (Apply(UNVERSIONED),)),
    "bookmark": Row(W8, Bookmark("20"), Watching("20"), (Advance("20"),)),
    "an old bookmark": Row(
        W8, Bookmark("5"), Waiting(STREAM, why="a bookmark is older than the cache", at_least_s=1.0)
    ),
    "a bookmark without a version": Row(W8, Bookmark(""), W8),
    "undecodable": Row(W8, Undecodable("bad", META9), W9, (Skip("bad", META9),)),
    "a field is unreadable": Row(
        W8, Undecodable("bad", META9, partial=PARTIAL9), W9, (Skip("bad", META9, partial=True), Apply(PARTIAL9))
    ),
    "a field is unreadable, in an old event": Row(W9, Undecodable("bad", META9, partial=PARTIAL9), W9),
    "undecodable and old": Row(W8, Undecodable("bad", META5), W8),
    "undecodable without an identity": Row(W8, Undecodable("bad"), W8, (Skip("bad", None),)),
    "an undecodable object was deleted": Row(W8, Undecodable("bad", META9, deleted=True), W9, (Remove(META9),)),
    "clean end": Row(W8, Ended(400), W8),
    "ended immediately after its start": Row(
        W8, Ended(0.1), Waiting(W8, why="the watch ended immediately after its start")
    ),
    "silence": Row(W8, Silent(), C8),
    "after silence, the server has the version": Row(C8, PageRead((A9,), "9", "more"), W8),
    "after silence, the server has gone back": Row(C8, PageRead((A5,), "7", "more"), STREAM),
    "after silence, no answer": Row(C8, Failed(REFUSED), cheap_after(REFUSED, C8)),
    "expired, in the stream": Row(W8, WatchError(EXPIRED), Waiting(STREAM, why="")),
    "expired, in the answer": Row(W8, Failed(EXPIRED), Waiting(STREAM, why="")),
    "version too large": Row(W8, Failed(TOO_NEW), too_large(2)),
    "version too large, in the stream": Row(W8, WatchError(TOO_NEW), too_large(2)),
    "version too large, without a hint": Row(
        W8, Failed(errors.ServerTimeout("too large", code=504, causes=("ResourceVersionTooLarge",))), too_large(1)
    ),
    "connection lost": Row(W8, Failed(LOST), cheap_after(LOST, W8)),
    "connection refused": Row(W8, Failed(REFUSED), cheap_after(REFUSED, STREAM)),
    "busy": Row(W8, Failed(BUSY), after(BUSY, W8, at_least_s=7)),
    "busy, in the stream": Row(W8, WatchError(BUSY), after(BUSY, W8, at_least_s=7)),
    "down": Row(W8, Failed(DOWN), after(DOWN, STREAM, at_least_s=3)),
    "crashed": Row(W8, Failed(CRASHED), cheap_after(CRASHED, W8)),
    "down, in the stream": Row(W8, WatchError(DOWN), cheap_after(DOWN, W8, at_least_s=3)),
    "crashed, in the stream": Row(W8, WatchError(CRASHED), after(CRASHED, STREAM)),
    "some other error, in the stream": Row(
        W8, WatchError(errors.Conflict("odd", code=409)), Waiting(STREAM, why="odd")
    ),
    "permission removed": Row(W8, Failed(FORBIDDEN), after(FORBIDDEN, W8)),
    "token rejected": Row(W8, Failed(UNAUTHORIZED), after(UNAUTHORIZED, W8)),
    "version rejected": Row(W8, Failed(BAD_REQUEST), after(BAD_REQUEST, STREAM)),
    "definition removed": Row(W8, Failed(NOT_SERVED), unserved(STREAM)),
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
