"""The transport of the client: its sockets, the reads of a watch in chunks, and the errors of aiohttp and the system.

Only a call of `close` closes a socket, never the garbage collector, because of a bug of uvloop (MagicStack/uvloop, 653
and 738). uvloop uses the descriptor of Python's socket object and closes it at the end. If the server resets a
connection before it is complete, uvloop does not tell the socket object. When Python frees the object later, it closes
the descriptor again, which may have become that of another connection. After that, every new connection with this
number fails until the process ends.

The sockets also detect a server that has lost its power or its network. A silent connection is probed after
`KEEPALIVE_IDLE_S` seconds, and one whose data stays unacknowledged for `USER_TIMEOUT_S` seconds ends.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp

from informers.errors import TransportError

KEEPALIVE_IDLE_S = 15
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3
USER_TIMEOUT_S = 30

_OPTIONS = (
    ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
    ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
    ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ("TCP_USER_TIMEOUT", USER_TIMEOUT_S * 1000),
)
"""The TCP options by name. A system may lack some of them."""


class OwnedSocket(socket.socket):
    """A socket whose file descriptor stays open when the garbage collector frees the socket object."""

    def __del__(self) -> None:
        # This method replaces the finalizer of `socket.socket`, which would close the file descriptor.
        self.detach()


def open_socket(address: tuple[int, int, int, str, Any]) -> OwnedSocket:
    family, kind, protocol, _, _ = address
    made = OwnedSocket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def transport_error(error: Exception, host: str, *, sent: bool = True) -> TransportError:
    """Convert an error of aiohttp or the system. `sent` is False if no byte of the body was sent, and in the result
    also without a connection or if the gate forbade the write.
    """
    match error:
        case aiohttp.ClientConnectionError(__cause__=TransportError() as forbidden_by_gate):
            return forbidden_by_gate
        case aiohttp.ClientConnectorCertificateError():
            cause = error.certificate_error
            why = getattr(cause, "verify_message", "") or str(cause)
            return TransportError(f"cannot trust the certificate of {host}: {why}", sent=False)
        case aiohttp.ClientConnectorError():
            return TransportError(f"cannot connect to {host}: {_reason(error.os_error)}", sent=False)
        case aiohttp.ConnectionTimeoutError():
            return TransportError(f"cannot connect to {host}: connection timeout", sent=False)
        case aiohttp.ClientHttpProxyError(status=status, message=message):
            return TransportError(f"cannot connect to {host}: the proxy answers {status} {message}", sent=False)
        case TimeoutError():
            return TransportError(f"no answer from {host} in time", sent=sent)
        case _:
            return TransportError(f"the connection to {host} was lost: {_reason(error)}", sent=sent)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def report_lost_connection(answer: aiohttp.ClientResponse) -> None:
    """Let the reads of this answer fail as soon as the connection is closed, also by a framing error."""
    protocol = answer.connection.protocol if answer.connection is not None else None
    closed = protocol.closed if protocol is not None else None
    content = answer.content

    def fail(closed: asyncio.Future[None]) -> None:
        # Without this read of the exception, asyncio would log that it was not retrieved.
        error = None if closed.cancelled() else closed.exception()
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError(str(error or "the framing of the answer is invalid")))

    if closed is not None:
        closed.add_done_callback(fail)


GATHER_S = 0.02
"""The pause in seconds. A change on a busy watch is read so much later at most."""

BUSY_S = 2 * GATHER_S
"""A watch is busy if the time between two chunks is shorter, in seconds."""

SMALL = 1 << 16
"""A chunk with fewer bytes is small. After a larger chunk, there is no pause."""


async def read_chunks(
    answer: aiohttp.ClientResponse, host: str, *, idle_timeout_s: float, may_pause: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """Yield the data of the answer. Raise TransportError, or TimeoutError if no data arrives for `idle_timeout_s`
    seconds.

    If a watch sends small pieces often and `may_pause`, the reader pauses, because a few large reads need less CPU.
    """
    loop = asyncio.get_running_loop()
    received = float("-inf")
    try:
        while True:
            # aiohttp has a timeout for reads too, but cancels it after some errors. So each read has a timeout here.
            async with asyncio.timeout(idle_timeout_s):
                chunk = await answer.content.readany()
            if not chunk:
                return
            before, received = received, loop.time()
            yield chunk
            if received - before < BUSY_S and len(chunk) < SMALL and may_pause():
                await _gather(answer)
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError) as error:
        raise transport_error(error, host) from error


async def _gather(answer: aiohttp.ClientResponse) -> None:
    transport = answer.connection.transport if answer.connection is not None else None
    if transport is None or transport.is_closing():
        return
    transport.pause_reading()
    try:
        await asyncio.sleep(GATHER_S)
    finally:
        transport.resume_reading()
