"""Watches through the fault proxy, against a tiny server."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.faults.proxy.actions import (
    Action,
    Coalesce,
    Corrupt,
    CutAnswer,
    CutWatch,
    Delay,
    Dribble,
    EndWatch,
    EnlargeEvent,
    FailWatch,
    Hang,
    HoldWatch,
    LagWatch,
    OmitEvents,
    Refuse,
    RepeatEvent,
    ReplayWatch,
    Reset,
)
from tests.faults.proxy.proxy import FaultProxy
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.streams import Gunzip
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
async def watching(query: str = "") -> AsyncIterator[tuple[TinyServer, FaultProxy, Client]]:
    """A watch through the proxy. The client has already received the headers of the answer and one event."""
    async with proxied() as (server, proxy), connected(proxy) as client:
        client.ask(f"{THINGS}?watch=1{query}")
        assert b" 200 OK\r\n" in await client.until(b"\r\n\r\n")
        await server.send(GUARD)
        assert await client.read(len(chunk(GUARD))) == chunk(GUARD)
        yield server, proxy, client


async def lines(client: Client, count: int) -> list[bytes]:
    return [await line(client) for _ in range(count)]


async def line(client: Client) -> bytes:
    size = int(await client.until(b"\r\n"), 16)
    return (await client.read(size + 2))[:-2]


async def test_a_held_watch_sends_its_events_in_order_when_the_rule_is_removed() -> None:
    async with watching() as (server, proxy, client):
        held = proxy.add(Rule(WATCH, HoldWatch()))
        await server.send(event("ADDED", "a"), event("ADDED", "b"))
        assert await client.silent()
        proxy.remove(held)
        assert await lines(client, 2) == [event("ADDED", "a"), event("ADDED", "b")]


async def test_a_held_watch_does_not_hold_the_watch_of_another_resource() -> None:
    async with watching() as (server, proxy, client), connected(proxy) as other:
        proxy.add(Rule(WATCH, HoldWatch()))
        other.ask("/apis/example.org/v1/others?watch=1")
        await other.until(b"\r\n\r\n")
        await server.send(event("ADDED", "a"))
        assert await line(other) == event("ADDED", "a")
        assert await client.silent()


async def test_a_rule_for_watches_waits_for_so_many_events_and_leaves_out_bookmarks() -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, HoldWatch(), after=2))
        sent = [event(type_, "a") for type_ in ("BOOKMARK", "ADDED", "MODIFIED", "DELETED")]
        await server.send(*sent)
        assert await lines(client, 3) == sent[:3]
        assert await client.silent()


async def test_a_lagging_watch_sends_each_event_late() -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, LagWatch(0.15)))
        await server.send(event("ADDED", "a"))
        assert await client.silent(0.1)
        assert await line(client) == event("ADDED", "a")


async def test_a_held_watch_stays_open_and_silent_even_if_the_server_ends_it() -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, HoldWatch()))
        await server.send(event("ADDED", "a"))
        await server.end()
        assert await client.silent()


async def test_a_watch_that_a_rule_ends_is_complete_and_the_connection_goes_on() -> None:
    async with watching() as (_, proxy, client):
        proxy.add(Rule(WATCH, EndWatch()))
        assert await client.read(5) == b"0\r\n\r\n"
        client.ask(THINGS)
        assert (await client.answer())[0] == 200


async def test_a_watch_is_reset_at_once() -> None:
    async with watching() as (_, proxy, client):
        proxy.add(Rule(WATCH, EndWatch(clean=False)))
        with pytest.raises(ConnectionResetError):
            await client.rest()


async def test_an_event_is_cut_at_each_byte() -> None:
    sent = event("ADDED", "a")
    for at in range(len(sent)):
        async with watching() as (server, proxy, client):
            proxy.add(Rule(WATCH, CutWatch(at)))
            await server.send(sent)
            if at:
                assert await line(client) == sent[:at]
            with pytest.raises(ConnectionResetError):
                await client.rest()


async def test_a_dribbled_watch_sends_each_byte_as_a_chunk() -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, Dribble(1)))
        sent = event("ADDED", "a")
        await server.send(sent)
        assert await lines(client, len(sent)) == [sent[at : at + 1] for at in range(len(sent))]


async def test_an_enlarged_event_is_still_the_same_object() -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, EnlargeEvent()))
        await server.send(event("ADDED", "a"), event("ADDED", "b"))
        large, small = await lines(client, 2)
        assert len(large) >= 4 * 1024 * 1024
        assert json.loads(large)["object"]["metadata"]["name"] == "a"
        assert small == event("ADDED", "b")


async def test_an_event_is_repeated() -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, RepeatEvent(), after=1))
        await server.send(event("ADDED", "a"), event("ADDED", "b"))
        assert await lines(client, 2) == [event("ADDED", "a"), 2 * event("ADDED", "b")]


async def test_omitted_events_never_come_and_the_watch_expires_after_them() -> None:
    async with watching() as (server, proxy, client):
        number = proxy.add(Rule(Match("watch", event="ADDED"), OmitEvents(2)))
        await server.send(event("ADDED", "a"), event("MODIFIED", "b"), event("ADDED", "c"))
        passed, error = await lines(client, 2)
        assert passed == event("MODIFIED", "b")
        assert json.loads(error)["object"]["reason"] == "Expired"
        assert await client.read(5) == b"0\r\n\r\n"
        assert len(proxy.decisions(number)) == 1


async def test_coalesced_events_are_the_last_state_of_each_object() -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, Coalesce(0.1)))
        await server.send(event("ADDED", "new", 2), event("ADDED", "gone", 3), event("MODIFIED", "old", 4))
        await server.send(event("MODIFIED", "new", 5), event("DELETED", "gone", 6), event("MODIFIED", "old", 7))
        assert await client.silent()
        assert await lines(client, 2) == [event("ADDED", "new", 5), event("MODIFIED", "old", 7)]
        await server.send(event("DELETED", "new", 8))
        assert await line(client) == event("DELETED", "new", 8)


@pytest.mark.parametrize(
    ("action", "code", "reason"),
    [(FailWatch(410), 410, "Expired"), (FailWatch(504, cause="ResourceVersionTooLarge"), 504, "Timeout")],
)
async def test_a_watch_ends_with_an_error_event(action: Action, code: int, reason: str) -> None:
    async with watching() as (_, proxy, client):
        proxy.add(Rule(WATCH, action))
        error = json.loads(await line(client))
        assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", code, reason)
        assert await client.read(5) == b"0\r\n\r\n"


async def test_a_rule_for_one_watch_acts_on_one_of_two_and_also_on_a_later_one() -> None:
    async with watching() as (_, proxy, _client), connected(proxy) as later:
        proxy.add(Rule(WATCH, EndWatch(), times=2))
        for _ in range(2):
            later.ask(f"{THINGS}?watch=1")
            await later.until(b"\r\n\r\n")
            if _ == 0:
                assert await later.read(5) == b"0\r\n\r\n"
        assert await later.silent()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("not JSON", b"<html>"),
        ("half JSON", b"\r\n" + event("ADDED", "abc")[:10]),
        ("wrong JSON", b'["an array"'),
        ("chunk size", b"not a number\r\n"),
        ("content length", event("ADDED", "abc")),
    ],
)
async def test_a_corrupted_event_ends_the_connection(how: str, expected: bytes) -> None:
    async with watching() as (server, proxy, client):
        proxy.add(Rule(WATCH, Corrupt(how)))  # type: ignore[arg-type]
        await server.send(event("ADDED", "abc"))
        assert expected in await client.rest()


async def test_a_watch_is_replayed_from_the_oldest_version_of_its_path() -> None:
    async with watching("&resourceVersion=5") as (server, proxy, _client), connected(proxy) as again:
        proxy.add(Rule(WATCH, ReplayWatch()))
        for version in ("9", "10"):
            async with connected(proxy) as other:
                other.ask(f"{THINGS}?watch=1&resourceVersion={version}&a=b")
                await other.until(b"\r\n\r\n")
        asked = [request.split(b" ")[1].decode() for request in server.requests]
        assert asked[1:] == [f"{THINGS}?watch=1&resourceVersion={v}&a=b" for v in ("5", "10")]
        proxy.add(Rule(WATCH, ReplayWatch("7")))
        again.ask(f"{THINGS}?watch=1&resourceVersion=11")
        await again.until(b"\r\n\r\n")
        assert server.requests[-1].startswith(f"GET {THINGS}?watch=1&resourceVersion=7 ".encode())


@pytest.mark.parametrize("action", [Refuse(410), Hang(), Reset()])
async def test_a_watch_that_is_refused_never_reaches_the_server(action: Action) -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        proxy.add(Rule(WATCH, action))
        client.ask(f"{THINGS}?watch=1")
        with suppress(ConnectionResetError):
            await client.silent()
        assert not server.requests


async def test_a_delayed_watch_opens_late() -> None:
    async with proxied() as (_, proxy), connected(proxy) as client:
        proxy.add(Rule(WATCH, Delay(answer_s=0.1)))
        client.ask(f"{THINGS}?watch=1")
        assert await client.silent()
        await client.until(b"\r\n\r\n")


async def test_a_compressed_watch_keeps_its_events_and_each_is_readable_at_once() -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        server.compress = True
        client.ask(f"{THINGS}?watch=1")
        assert b"Content-Encoding: gzip" in await client.until(b"\r\n\r\n")
        gunzip = Gunzip()
        for number in range(3):
            await server.send(event("ADDED", f"a{number}"))
            assert gunzip.decode(await line(client)) == event("ADDED", f"a{number}")


async def test_a_compressed_watch_is_cut_in_the_middle_of_the_compression() -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        proxy.add(Rule(WATCH, CutAnswer(20, gzip=True)))
        client.ask(f"{THINGS}?watch=1")
        assert b"Content-Encoding: gzip" in await client.until(b"\r\n\r\n")
        await server.send(event("ADDED", "a"))
        cut = await line(client)
        assert len(cut) == 20
        with pytest.raises(EOFError):
            gzip.decompress(cut)
        assert not zlib.decompressobj(wbits=31).decompress(cut).endswith(b"\n")
        with pytest.raises(ConnectionResetError):
            await client.rest()


async def test_after_the_client_has_left_the_watch_at_the_server_ends() -> None:
    async with proxied() as (server, proxy):
        async with connected(proxy) as client:
            client.ask(f"{THINGS}?watch=1")
            await client.until(b"\r\n\r\n")
            assert server.watches == 1
        for _ in range(100):
            await asyncio.sleep(0.01)
            await server.send(b"x\n")
            if not server.watches:
                return
        pytest.fail("the watch is still open")
