"""The limits of the HTTP server. A client that exceeds a limit harms no other client."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs

from controller.config.types import Address
from controller.server import connections
from controller.server.http import HttpServer
from tests.controller.server.serving import https, serving

Run = Callable[[Coroutine[Any, Any, None]], None]

PROBE = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Connection:
    """A TCP connection to the server. The test writes the bytes of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def send_slowly(self, content: bytes) -> None:
        for byte in content:
            await self.send(bytes([byte]))
            await asyncio.sleep(0.05)

    async def answer(self, *, within_s: float = 10.0) -> bytes:
        async with asyncio.timeout(within_s):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def is_open(self) -> bool:
        try:
            async with asyncio.timeout(0.2):
                return bool(await self._reader.read(1))
        except TimeoutError:
            return True
        except ConnectionResetError:
            return False

    async def close(self) -> None:
        self._writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def connected(address: Address | None, *, number: int = 1, read: int = 2**16) -> AsyncIterator[list[Connection]]:
    assert address is not None
    streams = [await asyncio.open_connection(address.host, address.port, limit=read) for _ in range(number)]
    opened = [Connection(*pair) for pair in streams]
    try:
        yield opened
    finally:
        for connection in opened:
            await connection.close()


async def probe(server: HttpServer) -> bytes:
    async with connected(server.health.bound) as [connection]:
        await connection.send(PROBE)
        return await connection.answer()


BEGINNING = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("limit", "sent", "is_answered"),
    [
        pytest.param("keepalive_timeout", b"", False, id="silent"),
        pytest.param("keepalive_timeout", b"GET /healthz HTTP/1.1\r\n", False, id="request line"),
        pytest.param("keepalive_timeout", BEGINNING + b"X-Slow: ", False, id="half a header"),
        pytest.param("keepalive_timeout", b"\r\n", False, id="empty line"),
        pytest.param("keepalive_timeout", PROBE.replace(b"close", b"keep-alive"), True, id="idle after an answer"),
        pytest.param("lingering_time", BEGINNING + b"Content-Length: 1000000000\r\n\r\nabc", True, id="a long body"),
    ],
)
async def test_a_connection_that_sends_nothing_more_is_closed(
    monkeypatch: pytest.MonkeyPatch, limit: str, sent: bytes, is_answered: bool
) -> None:
    monkeypatch.setitem(connections.LIMITS, limit, 0.3)
    async with serving() as server, connected(server.health.bound) as [connection]:
        await connection.send(sent)
        answer = await connection.answer(within_s=5)
    assert answer.endswith(b"ok") if is_answered else answer == b""


async def test_a_client_that_sends_one_byte_at_a_time_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.LIMITS, "keepalive_timeout", 0.3)
    async with serving() as server, connected(server.health.bound) as [connection]:
        started = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionError):
            await connection.send_slowly(PROBE * 10)
        assert asyncio.get_running_loop().time() - started < 5


@pytest.mark.parametrize(
    "header",
    [b"X-Long: " + b"x" * 20_000, b"\r\n".join(b"X-%d: x" % number for number in range(200))],
    ids=["a long header", "many headers"],
)
async def test_a_request_with_large_headers_is_refused_without_a_log_line(header: bytes) -> None:
    with capture_logs() as logs:
        async with serving() as server, connected(server.health.bound) as [connection]:
            await connection.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n")
            assert b" 400 Bad Request" in await connection.answer()
            assert (await probe(server)).endswith(b"ok")
    assert logs == []


async def test_a_probe_is_answered_while_a_client_holds_many_connections() -> None:
    async with serving() as server, connected(server.health.bound, number=connections.MAX_CONNECTIONS + 50) as held:
        assert (await probe(server)).endswith(b"ok")
        assert not await held[0].is_open(), "the oldest connections are closed"
        assert await held[-1].is_open()


async def test_a_client_that_reads_slowly_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT_S", 0.5)
    large = "x" * 50_000_000
    async with (
        serving(debug={"large": lambda: large}) as server,
        connected(server.health.bound, read=1000) as [connection],
    ):
        await connection.send(b"GET /debug/large HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(1.0)
        assert (await probe(server)).endswith(b"ok")
        assert len(await connection.answer()) < len(large)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine on each loop."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def untrusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def scrape(server: HttpServer) -> bytes:
    address = server.metrics.bound
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=untrusting())
    writer.write(PROBE.replace(b"/healthz", b"/metrics"))
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_a_client_that_begins_no_tls_handshake_is_closed(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(connections, "TLS_TIMEOUT_S", 0.3)

    async def check() -> None:
        async with serving(secure=https()) as server, connected(server.metrics.bound, number=2) as [silent, wrong]:
            await wrong.send(PROBE)
            assert b"HTTP" not in await wrong.answer(within_s=5)
            assert await silent.answer(within_s=5) == b""
            assert b"vmherd_build_info" in await scrape(server)

    run(check())


def test_connections_without_a_tls_handshake_count_towards_the_limit(run: Run) -> None:
    async def check() -> None:
        most = connections.MAX_CONNECTIONS
        async with serving(secure=https()) as server, connected(server.metrics.bound, number=2 * most) as held:
            assert (await probe(server)).endswith(b"ok")
            assert b"vmherd_build_info" in await scrape(server)
            assert [await each.is_open() for each in (held[0], held[most], held[-1])] == [False, False, True]
            await server.close()
            assert await held[-1].answer() == b"", "the end of the server ends the handshakes"

    run(check())


def test_a_request_in_the_last_packet_of_the_handshake_is_answered(run: Run) -> None:
    async def check() -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = untrusting().wrap_bio(incoming, outgoing)
        async with serving(secure=https()) as server:
            address = server.metrics.bound
            assert address is not None
            reader, writer = await asyncio.open_connection(address.host, address.port)
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            writer.write(outgoing.read())
            while client.version() is None or outgoing.pending == 0:
                incoming.write(await reader.read(2**16))
                with suppress(ssl.SSLWantReadError):
                    client.do_handshake()
            client.write(PROBE.replace(b"/healthz", b"/metrics"))
            writer.write(outgoing.read())
            answer = b""
            while not answer.startswith(b"HTTP/1.1 200 OK"):
                incoming.write(await reader.read(2**16))
                with suppress(ssl.SSLWantReadError):
                    answer += client.read(2**16)
            writer.transport.abort()

    run(check())
