"""A gate that each write passes last, when the next thing is the write itself.

Between the decision to write and the bytes there may be a wait for a connection, or a process that is stopped: longer
than a lease lasts.
"""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

Gate = Callable[[], None]
"""Raises GateClosed to forbid the write."""


class GatedConnector(aiohttp.TCPConnector):
    """Asks the gate between having a connection and writing to it: making one can take longer than a lease lasts."""

    gate: Gate | None = None

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the name is aiohttp's
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        if self.gate is not None and req.method != "GET":
            try:
                self.gate()
            except BaseException:
                connection.release()
                raise
        return connection


class GatedBody(aiohttp.BytesPayload):
    """Asks the gate once more, when the next thing is the bytes themselves.

    Before Python 3.12 a body is written in a later turn of the loop than the one that had the connection: a process
    that is stopped in between would send all that was waiting for that turn when it goes on.
    """

    def __init__(self, body: bytes, gate: Gate) -> None:
        super().__init__(body)
        self._ask = gate

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._ask()
        await super().write_with_length(writer, content_length)
