"""The API server behind a fault proxy."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

SET_BY_THE_CLIENT = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that the session to the server must not add."""


CLOSED_AFTER_S = 0.05
"""The time that TLS connections need to finish closing.

Without this pause, sockets stay open when the event loop ends.
"""


def abandon(answer: aiohttp.ClientResponse) -> None:
    """Close the connection of an answer at once. A TLS connection that is only closed would wait for the server."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
    answer.close()


@asynccontextmanager
async def open_upstream(ca: Path | None) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session to an API server while the block runs."""
    trust = ssl.create_default_context(cafile=str(ca)) if ca else False
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    async with aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        skip_auto_headers=SET_BY_THE_CLIENT,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield session
        await connector.close(abort_ssl=True)
    await asyncio.sleep(CLOSED_AFTER_S)
