"""Reads the data of a watch in chunks.

If a watch sends small pieces of data often, the reader pauses for `GATHER_S` after each piece. A few large reads need
less CPU than many small ones. The first two pieces after a silence are never delayed, and no piece of a list is.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

import aiohttp

from informers.http.transport import transport_error

GATHER_S = 0.02
"""The pause in seconds. A change on a busy watch is read so much later at most."""

BUSY_S = 2 * GATHER_S
"""A watch is busy if the time between two chunks is shorter, in seconds."""

SMALL = 1 << 16
"""A chunk with fewer bytes is small. After a larger chunk, there is no pause."""


async def read_chunks(
    answer: aiohttp.ClientResponse, host: str, *, idle_timeout_s: float, may_pause: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """Yield the data of the answer until its end. While `may_pause` returns False, there are no pauses.

    Raise TransportError if the connection is lost, and TimeoutError if no data arrives for `idle_timeout_s` seconds.
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
    """Read nothing for `GATHER_S` seconds, and let the system collect the data."""
    transport = answer.connection.transport if answer.connection is not None else None
    if transport is None or transport.is_closing():
        return
    transport.pause_reading()
    try:
        await asyncio.sleep(GATHER_S)
    finally:
        transport.resume_reading()
