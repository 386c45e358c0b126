"""Watches through the fault proxy, against a tiny server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.faults.proxy.actions import (
    Coalesce,
    CutWatch,
    EndWatch,
    FailWatch,
    HoldWatch,
    OmitEvents,
    RepeatEvent,
    ReplayWatch,
)
from tests.faults.proxy.answers import EXPIRED, error_event
from tests.faults.proxy.proxy import FaultProxy
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.tiny_server import Client, TinyServer, connected, proxied
from tests.faults.proxy.wire import chunk

THINGS = "/apis/example.org/v1/namespaces/n/things"
WATCH = Match("watch", "things")
GUARD = b'{"type":"ADDED","object":{"metadata":{"name":"guard"}}}\n'


def event(type_: str, name: str, version: int = 1) -> bytes:
    metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(version)}
    text = json.dumps({"type": type_, "object": {"metadata": metadata}}, separators=(",", ":"))
    return text.encode() + b"\n"


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[TinyServer, FaultProxy, Client]]:
    """A watch through the proxy. The client has already received the headers of the answer and one event."""
    async with proxied() as (server, proxy), connected(proxy) as client:
        client.ask(f"{THINGS}?watch=1")
        assert b" 200 OK\r\n" in await client.until(b"\r\n\r\n")
        await server.send(GUARD)
        assert await client.read(len(chunk(GUARD))) == chunk(GUARD)
        yield server, proxy, client


async def lines(client: Client, count: int) -> list[bytes]:
    return [await line(client) for _ in range(count)]


async def line(client: Client) -> bytes:
    size = int(await client.until(b"\r\n"), 16)
    return (await client.read(size + 2))[:-2]


A, B, BOOKMARK, CHANGED = event("ADDED", "a"), event("ADDED", "b"), event("BOOKMARK", ""), event("MODIFIED", "c")
OPEN, HELD, COMPLETE, RESET = "open", "held", "complete", "reset"


@pytest.mark.parametrize(
    ("rule", "seen", "end"),
    [
        (Rule(Match("watch", "others"), HoldWatch()), [A, BOOKMARK, CHANGED, B], OPEN),
        (Rule(WATCH, HoldWatch()), [], HELD),
        (Rule(WATCH, HoldWatch(), after=2), [A, BOOKMARK, CHANGED], HELD),
        (Rule(WATCH, RepeatEvent(), after=2), [A, BOOKMARK, CHANGED, 2 * B], OPEN),
        (Rule(WATCH, EndWatch()), [], COMPLETE),
        (Rule(WATCH, EndWatch(clean=False)), [], RESET),
        (Rule(WATCH, FailWatch(410)), [error_event(FailWatch(410))], COMPLETE),
        (Rule(Match("watch", event="ADDED"), OmitEvents(2)), [BOOKMARK, CHANGED, error_event(EXPIRED)], COMPLETE),
        (Rule(WATCH, CutWatch()), [A[: len(A) // 2]], RESET),
        *((Rule(WATCH, CutWatch(at), after=1), [A, BOOKMARK, *filter(None, [CHANGED[:at]])], RESET) for at in (0, 1)),
    ],
)
async def test_a_rule_decides_what_the_client_sees_of_a_watch_and_how_it_ends(
    rule: Rule, seen: list[bytes], end: str
) -> None:
    async with watching() as (server, proxy, client):
        number = proxy.add(rule)
        await server.send(A, BOOKMARK, CHANGED, B)
        assert await lines(client, len(seen)) == seen
        if end == HELD:
            await server.end()
        if end in (OPEN, HELD):
            assert await client.silent()
        elif end == COMPLETE:
            assert await client.read(5) == b"0\r\n\r\n"
            client.ask(THINGS)
            assert (await client.answer())[0] == 200
        else:
            with pytest.raises(ConnectionResetError):
                await client.rest()
        assert len(proxy.decisions(number)) == (rule.match.resource != "others")


async def test_coalesced_events_are_the_last_state_of_each_object() -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, Coalesce(0.1)))
        await server.send(event("ADDED", "new", 2), event("ADDED", "gone", 3), event("MODIFIED", "old", 4))
        await server.send(event("MODIFIED", "new", 5), event("DELETED", "gone", 6), event("MODIFIED", "old", 7))
        assert await client.silent()
        assert await lines(client, 2) == [event("ADDED", "new", 5), event("MODIFIED", "old", 7)]
        await server.send(event("DELETED", "new", 8))
        assert await line(client) == event("DELETED", "new", 8)


async def test_a_watch_is_replayed_from_an_older_version() -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        proxy.add(Rule(WATCH, ReplayWatch("7")))
        client.ask(f"{THINGS}?watch=1&resourceVersion=11&a=b")
        await client.until(b"\r\n\r\n")
        assert server.requests[-1].startswith(f"GET {THINGS}?watch=1&resourceVersion=7&a=b ".encode())
