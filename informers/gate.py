"""The gate: a function that is called immediately before each write and can forbid the write.

Much time can pass between the decision to write and the first byte: the client may wait for a connection, or the
process may be suspended. By then the leader's lease may have expired. So the check is the last step.
"""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

Gate = Callable[[], None]
"""To forbid a write, the gate raises GateClosed."""


class GatedConnector(aiohttp.TCPConnector):
    """Calls the gate after a connection is made and before the request is written to it.

    Making a connection can take longer than a lease lasts.
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

    Before Python 3.12 the body is written in a later iteration of the event loop than the connection is made. If the
    process is suspended in between, it would send the waiting body after it resumes.
    """

    def __init__(self, body: bytes, gate: Gate) -> None:
        super().__init__(body)
        self._gate = gate

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._gate()
        await super().write_with_length(writer, content_length)
