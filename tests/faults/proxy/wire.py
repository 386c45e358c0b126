"""HTTP/1.1 on one connection of the fault proxy: requests come in, and answers go out byte by byte.

The proxy writes its answers itself, because no HTTP server sends a broken answer on request.
"""

import asyncio
import socket
import ssl
import struct

from msgspec import Struct

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding"})


def _header(headers: tuple[tuple[str, str], ...], wanted: str) -> str:
    return next((text for name, text in headers if name.lower() == wanted), "")


class Received(Struct, frozen=True):
    """A request as it came in. Header names keep their case and order."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def wants_close(self) -> bool:
        return _header(self.headers, "connection").lower() == "close"


class Head(Struct, frozen=True):
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]

    @property
    def length(self) -> int | None:
        """Return the declared length of the body, or None if the body is chunked."""
        text = _header(self.headers, "content-length")
        return int(text) if text else None

    def encode(self, *, chunked: bool) -> bytes:
        headers = (*self.headers, ("Transfer-Encoding", "chunked")) if chunked else self.headers
        lines = [f"HTTP/1.1 {self.status} {self.reason}", *(f"{name}: {text}" for name, text in headers)]
        return "\r\n".join((*lines, "", "")).encode("latin-1")


class Answer(Struct, frozen=True):
    head: Head
    body: bytes

    def encode(self, method: str = "GET") -> bytes:
        """Return the bytes of the answer. If the head declares no length, the body is sent as one chunk."""
        chunked = self.head.length is None and self.head.status not in (204, 304) and method != "HEAD"
        if not chunked:
            return self.head.encode(chunked=False) + self.body
        return self.head.encode(chunked=True) + (chunk(self.body) if self.body else b"") + END_OF_CHUNKS


END_OF_CHUNKS = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Protocol(asyncio.StreamReaderProtocol):
    """Reads a connection and notices its end at once, even without a reader."""

    def __init__(self, reader: asyncio.StreamReader, gone: asyncio.Event) -> None:
        super().__init__(reader)
        self._gone = gone

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._gone.set()

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        self._reader = reader
        self._writer = writer
        self._transport = writer.transport
        self.gone = gone
        """Set when the connection is closed, by either side."""

    @classmethod
    async def accept(cls, sock: socket.socket, tls: ssl.SSLContext) -> "Wire":
        """Take a new connection, and do the TLS handshake. Raises OSError."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=256 * 1024)
        gone = asyncio.Event()
        protocol = _Protocol(reader, gone)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=30.0)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop), gone)

    async def receive(self) -> Received | None:
        """Return the next request, or None if the client has closed the connection."""
        try:
            text = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
            method, target, _ = first.split(" ", 2)
            headers = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
            length = int(_header(headers, "content-length") or 0)
            return Received(method, target, headers, await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return None

    @property
    def open(self) -> bool:
        return not self.gone.is_set() and not self._transport.is_closing()

    async def send(self, data: bytes) -> None:
        """Send bytes. If the client has closed the connection, nothing happens."""
        if not self.open:
            return
        self._writer.write(data)
        try:
            await self._writer.drain()
        except (ConnectionError, ssl.SSLError):
            self.reset()

    def close(self) -> None:
        """Close the connection after the data that is still to be sent."""
        self._transport.close()

    def reset(self) -> None:
        """Close the connection with a TCP reset. Data that is still to be sent is lost."""
        if not self._transport.is_closing():
            reset_on_close(self._transport.get_extra_info("socket"))
        self._transport.abort()


def reset_on_close(sock: socket.socket) -> None:
    """Make the kernel send a reset when the socket is closed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
