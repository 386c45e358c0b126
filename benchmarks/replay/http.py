"""HTTP/1.1 for the replay server, as an asyncio protocol. A request has a body with a known length, or none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

REASONS = {200: b"OK", 201: b"Created"}
JSON = b"application/json"
END = b"0\r\n\r\n"


class Request(NamedTuple):
    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float
    """The time when the last byte arrived, from `time.perf_counter`."""


class Answer(NamedTuple):
    code: int
    body: bytes


Stream = Callable[["Connection"], Coroutine[Any, Any, None]]
"""Writes an answer without an end, such as a watch."""


class Connection(asyncio.Protocol):
    """One connection of a client. Requests are answered one after the other."""

    def __init__(self, handle: Callable[[Request], Answer | Stream]) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._transport: asyncio.Transport
        self._stream: asyncio.Task[None] | None = None
        self._flows = asyncio.Event()
        self._flows.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1 << 20)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def pause_writing(self) -> None:
        self._flows.clear()

    def resume_writing(self) -> None:
        self._flows.set()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (request := self._next_request()) is not None:
            answer = self._handle(request)
            if isinstance(answer, Answer):
                self._transport.write(
                    b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
                    % (answer.code, REASONS.get(answer.code, b"Error"), JSON, len(answer.body))
                    + answer.body
                )
            else:
                self._transport.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % JSON
                )
                self._stream = self._loop.create_task(answer(self))

    async def flows(self) -> None:
        """Wait until the client has read enough."""
        await self._flows.wait()

    def send(self, data: bytes) -> None:
        """Write one chunk of a stream."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self._transport.write(END)

    def _next_request(self) -> Request | None:
        """Take one complete request from the received bytes, or return None."""
        head_end = self._unread.find(b"\r\n\r\n")
        if head_end < 0:
            return None
        first, *lines = bytes(self._unread[:head_end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body_end = head_end + 4 + int(headers.get("content-length", 0))
        if len(self._unread) < body_end:
            return None
        body = bytes(self._unread[head_end + 4 : body_end])
        del self._unread[:body_end]
        method, target, _ = first.split(" ", 2)
        path, _, query = target.partition("?")
        return Request(method, unquote(path), dict(parse_qsl(query)), headers, body, time.perf_counter())
