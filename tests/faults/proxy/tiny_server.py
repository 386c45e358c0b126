"""A tiny server behind the fault proxy, and a client in front of it, for tests of the proxy itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from tests.faults.proxy.proxy import FaultProxy, fault_proxy
from tests.faults.proxy.upstream import open_upstream
from tests.faults.proxy.wire import chunk

WATCH_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def plain(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nAudit-Id: 1\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def length_of(head: bytes) -> int:
    """The length of the body; 0 if the head declares none."""
    lengths = (line.partition(b":")[2] for line in head.splitlines() if line.lower().startswith(b"content-length"))
    return int(next(lengths, 0))


class TinyServer:
    """Records its requests as bytes. A path with "watch=" is answered with the lines that the test sends."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answer = plain(b'{"kind":"Thing"}')
        self._watchers: list[asyncio.StreamWriter] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head + await reader.readexactly(length_of(head)))
                if b"watch=" in head.split(b"\r\n", 1)[0]:
                    writer.write(WATCH_HEAD)
                    self._watchers.append(writer)
                else:
                    writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def send(self, *lines: bytes) -> None:
        """Send lines to all watches."""
        for writer in self._watchers:
            for line in lines:
                writer.write(chunk(line))

    async def end(self) -> None:
        """End all watches with a complete answer."""
        for writer in self._watchers:
            writer.write(b"0\r\n\r\n")


class Client(Struct):
    """One connection to the proxy, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def ask(self, target: str, method: str = "GET", body: bytes = b"", headers: str = "") -> None:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        text = f"{method} {target} HTTP/1.1\r\nHost: api\r\nAccept: application/json\r\n{headers}{length}\r\n"
        self.writer.write(text.encode() + body)

    async def read(self, size: int, within_s: float = 5.0) -> bytes:
        async with asyncio.timeout(within_s):
            return await self.reader.readexactly(size)

    async def until(self, end: bytes, within_s: float = 5.0) -> bytes:
        async with asyncio.timeout(within_s):
            return await self.reader.readuntil(end)

    async def rest(self, within_s: float = 5.0) -> bytes:
        """Everything until the connection is closed. A reset raises ConnectionResetError."""
        async with asyncio.timeout(within_s):
            return await self.reader.read(-1)

    async def answer(self) -> tuple[int, bytes, bytes]:
        """The status, the head and the body of an answer with a length."""
        head = await self.until(b"\r\n\r\n")
        return int(head.split(b" ")[1]), head, await self.read(length_of(head))

    async def silent(self, for_s: float = 0.05) -> bool:
        """True if no byte comes and the connection stays open."""
        try:
            async with asyncio.timeout(for_s):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def tiny_server() -> AsyncIterator[TinyServer]:
    server = TinyServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(20):
        try:
            yield server
        finally:
            listening.close()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[TinyServer, FaultProxy]]:
    """A tiny server and a proxy in front of it."""
    async with (
        tiny_server() as server,
        open_upstream(server.url) as upstream,
        fault_proxy(upstream, tls=False) as proxy,
    ):
        yield server, proxy


@asynccontextmanager
async def connected(proxy: FaultProxy) -> AsyncIterator[Client]:
    """A connection to the proxy."""
    port = int(proxy.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
