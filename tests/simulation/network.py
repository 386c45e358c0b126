"""The network between the clients and the API server: a stand-in for the session and the connector of aiohttp.

The real `ApiClient` runs on it, with its gate, limits, retries and conversion of errors. A request and its answer are
bytes, and a watch is a stream of chunks that are cut anywhere. A request that was sent reaches the server even if its
process ends, and the answer may get lost.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from random import Random
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from controller.assembly import OpenClient
from informers.http.client import ApiClient
from informers.http.configuration import Credentials
from informers.http.gate import Gate, GatedBody
from informers.instruments import Instruments
from tests.simulation.faults import Faults
from tests.simulation.loop import Process
from tests.simulation.server import Answer, Call, SimulatedServer, Watch

TYPICAL_S = 0.01
SLOW_S = 3.0
WORLD = Context()
"""The context of callbacks that belong to no process."""


class Network:
    """Carries requests to the server, and watches to the clients. `chance` chooses latencies and faults."""

    def __init__(self, server: SimulatedServer, faults: Faults, chance: Random) -> None:
        self.server = server
        self.faults = faults
        self.chance = chance
        self.streams: list[Stream] = []
        self.loop = server.loop

    def latency(self) -> float:
        typical = self.chance.expovariate(1 / TYPICAL_S) + 0.001
        if self.faults.hit("slow", self.loop.now, self.chance):
            typical += self.chance.uniform(0, SLOW_S)
        return typical

    def later(self, delay_s: float, callback: Any, *args: Any) -> None:
        self.loop.call_later(delay_s, callback, *args, context=WORLD)

    async def exchange(self, call: Call, process: Process) -> Answer:
        answer: asyncio.Future[Answer] = self.loop.create_future()
        self.later(self.latency(), self._deliver, call, answer, process)
        return await answer

    def _deliver(self, call: Call, answer: "asyncio.Future[Answer]", process: Process) -> None:
        now = self.loop.time()
        is_lost = self.faults.hit("lost", now, self.chance) is not None
        result = self.server.serve(call)
        if call.method in ("PUT", "DELETE") and self.faults.hit("doubled", now, self.chance):
            result = self.server.serve(call)
        self.later(self.latency(), _answer, answer, None if is_lost or process.is_dead else result)

    def open(self, watch: Watch, process: Process) -> "Stream":
        self.streams = [each for each in self.streams if not each.is_closed]
        stream = Stream(self, watch, process)
        self.streams.append(stream)
        return stream

    def break_streams(self) -> None:
        """Break all open watches, also in the middle of a line."""
        for stream in self.streams:
            stream.reset()


def _answer(future: "asyncio.Future[Answer]", answer: Answer | None) -> None:
    if future.done():
        return
    if answer is None:
        future.set_exception(aiohttp.ServerDisconnectedError())
    else:
        future.set_result(answer)


class Stream:
    """The answer to a watch, with the attributes of aiohttp's answer that the client reads."""

    connection = None
    status = 200

    def __init__(self, network: Network, watch: Watch, process: Process) -> None:
        self.headers: dict[str, str] = {}
        self.content = self
        self.is_closed = False
        self.resource = watch.resource
        self._network = network
        self._watch = watch
        self._process = process
        self._arrived = bytearray()
        self._on_the_way = bytearray()
        self._is_ending = self._is_broken = self._has_ended = self._is_flushing = False
        self._waiter: asyncio.Future[None] | None = None
        kinds = ("stall", "stall-list") if watch.first else ("stall",)
        self._stalls = any(network.faults.hit(kind, network.loop.now, network.chance) for kind in kinds)
        watch.connect(self._send, self._end)

    def reset(self) -> None:
        """Break the connection after a part of the data."""
        cut = self._network.chance.randint(0, len(self._on_the_way))
        self._arrived += self._on_the_way[:cut]
        self._on_the_way.clear()
        self._is_broken = True
        self._watch.close()
        self._wake()

    def silence(self) -> None:
        """Send nothing more, not even an end."""
        self._watch.close()
        self._on_the_way.clear()

    async def readany(self) -> bytes:
        while not self._arrived:
            if self._is_broken or self._process.is_dead:
                raise aiohttp.ClientPayloadError("the connection was reset")
            if self._has_ended:
                return b""
            self._waiter = self._network.loop.create_future()
            await self._waiter
        data = bytes(self._arrived)
        self._arrived.clear()
        return data

    def close(self) -> None:
        self.is_closed = True
        self._watch.close()

    def _send(self, data: bytes) -> None:
        self._on_the_way += data
        self._flush_later()

    def _end(self) -> None:
        self._is_ending = True
        self._flush_later()

    def _flush_later(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._network.later(self._network.latency(), self._flush)

    def _flush(self) -> None:
        """Let the data arrive, sometimes only a part of it."""
        self._is_flushing = False
        if self.is_closed or self._is_broken:
            return
        size = len(self._on_the_way)
        if size > 1 and (self._stalls or self._network.chance.random() < 0.15):
            size = self._network.chance.randint(1, size - 1)
        self._arrived += self._on_the_way[:size]
        del self._on_the_way[:size]
        if self._on_the_way:
            self._flush_later()
        elif self._is_ending:
            self._has_ended = True
        self._wake()
        if self._stalls:
            self.silence()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Headers(dict[str, str]):
    def getall(self, name: str, default: Any = ()) -> Any:
        return [self[name]] if name in self else default


class _Response:
    """The answer to a request, with the methods of aiohttp's answer that the client calls."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.code
        self.headers = _Headers(answer.headers)
        self.content = self
        self._body = answer.body

    async def read(self) -> bytes:
        return self._body

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._body

    async def __aenter__(self) -> "_Response":
        return self

    async def __aexit__(self, *_: object) -> None:
        """The connection can be used again."""


class _Written:
    """Takes the bytes of a request body."""

    def __init__(self) -> None:
        self.data = b""

    async def write(self, chunk: bytes) -> None:
        self.data += bytes(chunk)


class Connector:
    gate: Gate | None = None


class Session:
    def __init__(self, network: Network, connector: Connector, process: Process, actor: str) -> None:
        self._network = network
        self._connector = connector
        self._process = process
        self._actor = actor

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None,
        data: bytes | GatedBody | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        **_: Any,
    ) -> AsyncIterator[_Response]:
        async with asyncio.timeout(timeout.total):
            await self._connect()
            if self._connector.gate is not None and method != "GET":
                self._connector.gate()
            written = _Written()
            if isinstance(data, GatedBody):
                await data.write_with_length(written, None)  # type: ignore[arg-type]
            elif data is not None:
                written.data = data
            kind = headers.get("Content-Type", ""), headers.get("Accept", "")
            call = Call(self._actor, method, urlsplit(url).path, dict(params or {}), written.data, *kind)
            answer = await self._network.exchange(call, self._process)
        yield _Response(answer)

    async def get(self, url: str, *, params: Mapping[str, str], **_: Any) -> Any:
        """Open a watch."""
        await self._connect()
        call = Call(self._actor, "GET", urlsplit(url).path, dict(params), b"", "", "")
        await asyncio.sleep(self._network.latency())
        answer = self._network.server.watch(call)
        if isinstance(answer, Answer):
            return _Response(answer)
        return self._network.open(answer, self._process)

    async def _connect(self) -> None:
        network = self._network
        if self._process.is_dead:
            raise aiohttp.ServerDisconnectedError
        if network.faults.hit("refused-connection", network.loop.now, network.chance):
            await asyncio.sleep(network.latency())
            raise aiohttp.ClientConnectorError(None, OSError(111, "refused"))  # type: ignore[arg-type]


def opener_of(network: Network, process: Process, actor: str) -> OpenClient:
    """Return the function that opens each client of a controller."""

    @asynccontextmanager
    async def open_client(
        credentials: Credentials, *, user_agent: str, instruments: Instruments, max_inflight: int | None
    ) -> AsyncIterator[ApiClient]:
        connector: Any = Connector()
        session: Any = Session(network, connector, process, actor)
        yield ApiClient(session, connector, credentials, instruments=instruments, max_inflight=max_inflight)

    return open_client
