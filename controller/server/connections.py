"""The limits of the HTTP server for each request and for all connections.

Every client that reaches the port can open connections. Without these limits, such a client could use all file
descriptors or all memory of the process. Then the process could not reach the API server any more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_CONNECTIONS: Final = 100
"""The largest number of open connections to one address. At this limit, a new connection replaces the oldest
connection.

So one client with many connections cannot block the kubelet's probes.
"""

IDLE_TIMEOUT_S: Final = 30.0
"""The longest wait, in seconds, until the header of the next request is complete."""

ANSWER_TIMEOUT_S: Final = 30.0
"""The time limit, in seconds, for one answer. In this time, the server makes the answer and sends it to the client."""

BODY_TIMEOUT_S: Final = 1.0
"""The longest time, in seconds, for which the server reads the body of a request. The server ignores the body, because
no request needs a body.
"""

TLS_TIMEOUT_S: Final = 5.0
MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 8190
"""The largest size, in bytes, of the request line, and of each header. A header with the token of a service account is
smaller than this limit.
"""

LIMITS: Final[Mapping[str, Any]] = {
    "keepalive_timeout": IDLE_TIMEOUT_S,
    "lingering_time": BODY_TIMEOUT_S,
    "max_line_size": MAX_HEADER_BYTES,
    "max_field_size": MAX_HEADER_BYTES,
    "max_headers": MAX_HEADERS,
}
"""The limits as arguments of aiohttp's `AppRunner`."""


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


def limited(server: web.Server) -> Callable[[], asyncio.Protocol]:
    """Return a factory of protocols for `loop.create_server`. The factory keeps at most `MAX_CONNECTIONS` connections
    open.
    """

    def make_protocol() -> asyncio.Protocol:
        connections = server.connections
        for oldest in connections[: max(0, len(connections) - MAX_CONNECTIONS + 1)]:
            if isinstance(oldest.transport, asyncio.WriteTransport):
                oldest.transport.abort()
        return server()

    return make_protocol


def server_log() -> logging.Logger:
    """Return the logger of the server, without lines about invalid requests.

    Such a line contains bytes of the request. If these lines were written, any client could fill the log.
    """
    log = logging.getLogger("aiohttp.server.limited")
    if not log.filters:
        log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
    return log
