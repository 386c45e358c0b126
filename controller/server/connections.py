"""The limits of the HTTP server for each request and for all connections.

Every client that reaches the port can open connections. Without these limits, such a client could use all file
descriptors or all memory of the process. Then the process could not reach the API server any more.
"""

import asyncio
import logging
import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_CONNECTIONS: Final = 100
"""The most open connections to one address. A further one replaces the oldest, so no client blocks the probes."""

IDLE_TIMEOUT_S: Final = 30.0
"""The longest wait, in seconds, until the header of the next request is complete."""

ANSWER_TIMEOUT_S: Final = 30.0
BODY_TIMEOUT_S: Final = 1.0
"""The longest time for which the server reads the body of a request, in seconds. No request needs a body."""

TLS_TIMEOUT_S: Final = 5.0
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 8190
"""The largest size of the request line and of each header. The token of a service account is smaller."""

LIMITS: Final[Mapping[str, Any]] = {
    "keepalive_timeout": IDLE_TIMEOUT_S,
    "lingering_time": BODY_TIMEOUT_S,
    "max_line_size": MAX_HEADER_BYTES,
    "max_field_size": MAX_HEADER_BYTES,
    "max_headers": MAX_HEADERS,
}


@web.middleware
async def answer_in_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Send the answer of the handler. If this takes longer than `ANSWER_TIMEOUT_S`, abort the connection."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            answer = await handler(request)
            await answer.prepare(request)
            await answer.write_eof()
            return answer
    except TimeoutError as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client reads too slowly") from error


class Connections:
    """The connections to one address, from the TLS handshake on. `serve` makes the protocol of one."""

    def __init__(self, serve: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None) -> None:
        self._serve = serve
        self._tls: dict[str, Any] = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": TLS_TIMEOUT_S}
        self._open: dict[socket.socket, asyncio.Task[None]] = {}
        """The handshake of each connection, the oldest first. A closed one stays until the next `accept`."""

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection, for `loop.create_server` without TLS."""
        return _Accepted(self._add)

    def end(self, number: int = sys.maxsize) -> None:
        for oldest in [*self._open][: max(0, number)]:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
            del self._open[oldest]

    def _add(self, connection: socket.socket) -> None:
        self._open = {each: task for each, task in self._open.items() if each.fileno() >= 0}
        self.end(len(self._open) - MAX_CONNECTIONS + 1)
        self._open[connection] = asyncio.get_running_loop().create_task(self._begin(connection), name="handshake")

    async def _begin(self, connection: socket.socket) -> None:
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(self._serve, connection, **self._tls)


class _Accepted(asyncio.Protocol):
    """Takes the socket of a new connection from its transport. The event loop does not report a TLS handshake."""

    def __init__(self, take: Callable[[socket.socket], None]) -> None:
        self._take = take

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        try:
            self._take(socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())))
        except OSError:
            pass  # there is no free file descriptor, or the client is gone
        finally:
            cast(asyncio.Transport, transport).abort()


def server_log() -> logging.Logger:
    """Return the logger of the server, without lines with which a client could fill the log."""
    log = logging.getLogger("aiohttp.server.limited")
    if not log.filters:
        expected = (HttpProcessingError, ConnectionError)
        log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], expected)))
    return log
