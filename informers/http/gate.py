"""A gate is a function that the client calls immediately before each write. The gate can forbid the write.

Much time can pass between the decision to write and the first byte of the request. The client may wait for a
connection, or the process may be suspended. The leader's lease may expire during this time. So the client calls the
gate as the last step before it sends the request.
"""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

Gate = Callable[[], None]
"""The type of a gate. To forbid a write, the gate raises GateClosed."""


class GatedConnector(aiohttp.TCPConnector):
    """A connector that calls the gate after it has opened the connection for a request.

    The leader's lease may expire while the connection is opened, so the gate is not called earlier. GET requests do not
    call the gate.
    """

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
    """A request body that calls the gate once more, immediately before its bytes are written.

    In Python versions before 3.12, aiohttp writes the body in a later iteration of the event loop. The process may be
    suspended before that iteration. The lease may expire during the suspension. Without the second call of the gate,
    the process would then send the body.
    """

    def __init__(self, body: bytes, gate: Gate) -> None:
        super().__init__(body)
        self._gate = gate

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._gate()
        await super().write_with_length(writer, content_length)
