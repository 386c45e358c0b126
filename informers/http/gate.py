"""A gate is a function that the client calls as the last step before each write, and that can forbid it.

The client may wait for a connection, or the process may be suspended, so the leader's lease may expire between the
decision to write and the first byte of the request.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

Gate = Callable[[], None]
"""The type of a gate. To forbid a write, the gate raises GateClosed."""


class GatedConnector(aiohttp.TCPConnector):
    """Calls the gate on the open connection of a request other than GET, and waits for cancelled ones at the end."""

    gate: Gate | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._transports: dict[asyncio.Future[None], asyncio.Transport] = {}

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the name is aiohttp's
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        self._remember(connection)
        if self.gate is not None and req.method != "GET":
            try:
                self.gate()
            except BaseException:
                connection.release()
                raise
        return connection

    def _remember(self, connection: Connection) -> None:
        protocol, transport = connection.protocol, connection.transport
        ended = protocol.closed if protocol is not None else None
        if ended is not None and transport is not None and ended not in self._transports:
            self._transports[ended] = transport
            ended.add_done_callback(self._forget)

    def _forget(self, ended: asyncio.Future[None]) -> None:
        del self._transports[ended]
        ended.exception()  # asyncio logs an exception that no code reads

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Abort all connections. Wait until they have ended, a second at most."""
        await super().close(abort_ssl=abort_ssl)
        for transport in self._transports.values():
            transport.abort()
        if self._transports:
            await asyncio.wait(self._transports, timeout=1)


class GatedBody(aiohttp.BytesPayload):
    """Calls the gate once more, immediately before its bytes are written. `is_begun` is True after that.

    Python before 3.12 writes the body in a later iteration of the event loop, and the lease may expire before it.
    """

    def __init__(self, body: bytes, gate: Gate | None) -> None:
        super().__init__(body)
        self._gate = gate
        self.is_begun = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if self._gate is not None:
            self._gate()
        self.is_begun = True
        await super().write_with_length(writer, content_length)
