"""This module converts exceptions of aiohttp and the operating system to TransportError."""

import asyncio
import os

import aiohttp

from informers.errors import TransportError


def transport_error(error: Exception, host: str, *, sent: bool = True) -> TransportError:
    """Convert an error of aiohttp or the system to TransportError.

    `sent` is False if the client has not begun to write the body of the request. In the result, `sent` is also False
    if the client had no connection or if the gate forbade the write. In every other case the request may have reached
    the server.
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
    """Return the reason of a failure as text for users.

    If the error has an error number, return the operating system's text for this number. Otherwise return the text of
    the exception, or the name of its class if the text is empty.
    """
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def report_lost_connection(answer: aiohttp.ClientResponse) -> None:
    """Let the reads of this answer fail as soon as the connection is closed.

    aiohttp closes the connection after a framing error, such as an invalid chunk size, but does not tell the reader. A
    read would wait until its timeout.
    """
    protocol = answer.connection.protocol if answer.connection is not None else None
    closed = protocol.closed if protocol is not None else None
    content = answer.content

    def fail(closed: asyncio.Future[None]) -> None:
        # Without this read of the exception, asyncio would log that nobody retrieved it.
        error = None if closed.cancelled() else closed.exception()
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError(str(error or "the framing of the answer is invalid")))

    if closed is not None:
        closed.add_done_callback(fail)
