"""Watches through the fault proxy, against a tiny server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientPayloadError, ClientSession, ClientTimeout, StreamReader, TCPConnector, web
from aiohttp.test_utils import TestServer

from tests.faults.proxy.actions import CutWatch, EndWatch, FailWatch, HoldWatch, OmitEvent, RepeatEvent, ReplayWatch
from tests.faults.proxy.answers import EXPIRED, error_event
from tests.faults.proxy.proxy import FaultProxy, fault_proxy
from tests.faults.proxy.rules import Match, Rule


class TinyServer:
    """Records its requests. A watch is answered with the lines that the test sends."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._watch = web.StreamResponse()
        self._ended = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.requests.append(request.raw_path)
        if "watch" not in request.query:
            return web.json_response({"kind": "Thing"})
        await self._watch.prepare(request)
        await self._ended.wait()
        return self._watch

    async def send(self, *lines: bytes) -> None:
        for line in lines:
            await self._watch.write(line)

    def end(self) -> None:
        """End the watch with a complete answer."""
        self._ended.set()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[TinyServer, FaultProxy, ClientSession]]:
    """A tiny server, a proxy in front of it, and a client of the proxy."""
    server, app = TinyServer(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with (
        asyncio.timeout(20),
        TestServer(app) as listening,
        fault_proxy(str(listening.make_url("")).rstrip("/")) as proxy,
        ClientSession(proxy.url, timeout=ClientTimeout(5), connector=TCPConnector(ssl=False)) as client,
    ):
        try:
            yield server, proxy, client
        finally:
            server.end()


THINGS = "/apis/example.org/v1/namespaces/n/things"
WATCH = Match("watch", "things")
GUARD = b'{"type":"ADDED","object":{"metadata":{"name":"guard"}}}\n'


def event(type_: str, name: str, version: int = 1) -> bytes:
    metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(version)}
    text = json.dumps({"type": type_, "object": {"metadata": metadata}}, separators=(",", ":"))
    return text.encode() + b"\n"


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[TinyServer, FaultProxy, ClientSession, StreamReader]]:
    """A watch through the proxy. The client has already received one event."""
    async with proxied() as (server, proxy, client), client.get(f"{THINGS}?watch=1") as answer:
        assert answer.status == 200
        await server.send(GUARD)
        assert await answer.content.readline() == GUARD
        yield server, proxy, client, answer.content


async def is_silent(watch: StreamReader) -> bool:
    """True if no byte comes for a moment, and the connection stays open."""
    try:
        async with asyncio.timeout(0.05):
            await watch.readany()
    except TimeoutError:
        return True
    return False


A, B, BOOKMARK, CHANGED = event("ADDED", "a"), event("ADDED", "b"), event("BOOKMARK", ""), event("MODIFIED", "c")
OPEN, HELD, COMPLETE, RESET = "open", "held", "complete", "reset"


@pytest.mark.parametrize(
    ("rule", "seen", "end"),
    [
        (Rule(Match("watch", "others"), HoldWatch()), [A, BOOKMARK, CHANGED, B], OPEN),
        (Rule(WATCH, HoldWatch()), [], HELD),
        (Rule(WATCH, RepeatEvent()), [2 * A, BOOKMARK, CHANGED, B], OPEN),
        (Rule(WATCH, EndWatch()), [], COMPLETE),
        (Rule(WATCH, EndWatch(clean=False)), [], RESET),
        (Rule(WATCH, FailWatch(410)), [error_event(FailWatch(410))], COMPLETE),
        (Rule(WATCH, OmitEvent()), [error_event(EXPIRED)], COMPLETE),
        (Rule(WATCH, CutWatch()), [A[: len(A) // 2]], RESET),
        *((Rule(WATCH, CutWatch(at)), [A[:at]], RESET) for at in (0, 1)),
    ],
)
async def test_a_rule_decides_what_the_client_sees_of_a_watch_and_how_it_ends(
    rule: Rule, seen: list[bytes], end: str
) -> None:
    async with watching() as (server, proxy, client, watch):
        number = proxy.add(rule)
        await server.send(A, BOOKMARK, CHANGED, B)
        for each in seen:
            assert await watch.readexactly(len(each)) == each
        if end == HELD:
            server.end()
        if end in (OPEN, HELD):
            assert await is_silent(watch)
        elif end == COMPLETE:
            assert await watch.read() == b""
            connections = set(proxy.listener.wires)
            async with client.get(THINGS) as answer:
                assert answer.status == 200
            assert proxy.listener.wires == connections, "no new connection"
        else:
            with pytest.raises(ClientPayloadError, match="Connection reset by peer"):
                await watch.read()
        assert proxy.decisions(number) == (rule.match.resource != "others")


async def test_a_watch_is_replayed_from_an_older_version() -> None:
    async with proxied() as (server, proxy, client):
        proxy.add(Rule(WATCH, ReplayWatch("7")))
        async with client.get(f"{THINGS}?watch=1&resourceVersion=11&a=b"):
            assert server.requests == [f"{THINGS}?watch=1&resourceVersion=7&a=b"]
