"""An API server's side of a conversation, written down: what each request of an informer is answered, in order.

For tests in virtual time of what is around the list-and-watch machine. No server: it checks nothing and keeps nothing,
and a test that asks for more than is written down hangs in a watch that never ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from informers.errors import ApiError, from_response
from informers.informer import SharedInformer
from tests.informers.subjects import CONFIGMAPS, ConfigMap


class Stream(NamedTuple):
    """A watch: its chunks, with pauses where there is a number, and how it ends; None: it does not."""

    chunks: tuple[bytes | float, ...] = ()
    end: Exception | str | None = None


END = "end"


def stream(*chunks: bytes | float, end: Exception | str | None = None) -> Stream:
    return Stream(chunks, end)


class Asked(NamedTuple):
    at: float
    path: str
    params: Mapping[str, str]


class ScriptedClient:
    """Stands where an ApiClient stands. `answers` are pages (bytes), streams and errors."""

    def __init__(self, *answers: bytes | Stream | Exception, streaming: bool = False) -> None:
        self.asked: list[Asked] = []
        self._answers = list(answers)
        self._streaming = streaming

    async def request(self, method: str, path: str, *, params: Mapping[str, str], **_: Any) -> bytes:
        assert method == "GET"
        answer = self._next(path, params)
        assert isinstance(answer, bytes), f"a page was asked for, and the script has {answer}"
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], idle_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        if "sendInitialEvents" in params and not self._streaming:
            self.asked.append(self._asked(path, params))
            raise from_response(422, b"")
        answer = self._next(path, params)
        assert isinstance(answer, Stream), f"a watch was asked for, and the script has {answer!r}"
        chunks = _chunks(answer, idle_timeout_s)
        try:
            yield chunks
        finally:
            await chunks.aclose()

    def times(self) -> list[float]:
        return [asked.at for asked in self.asked]

    def _next(self, path: str, params: Mapping[str, str]) -> bytes | Stream:
        self.asked.append(self._asked(path, params))
        answer = self._answers.pop(0) if self._answers else Stream()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @staticmethod
    def _asked(path: str, params: Mapping[str, str]) -> Asked:
        return Asked(asyncio.get_running_loop().time(), path, dict(params))


async def _chunks(answer: Stream, idle_timeout_s: float) -> AsyncGenerator[bytes, None]:
    for chunk in answer.chunks:
        if isinstance(chunk, bytes):
            yield chunk
        else:
            await asyncio.sleep(chunk)
    if isinstance(answer.end, Exception):
        raise answer.end
    if answer.end is None:
        await asyncio.sleep(idle_timeout_s)
        raise TimeoutError


class Reports:
    """What an informer reported about itself."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.progressed = 0
        self.size = 0

    def listed(self, resource: str, *, reason: str) -> None:
        self.said.append(f"listed: {reason}")

    def watch_started(self, resource: str) -> None: ...

    def watch_ended(self, resource: str, *, reason: str) -> None:
        self.said.append(f"ended: {reason}")

    def progress(self, resource: str) -> None:
        self.progressed += 1

    def decode_failed(self, resource: str) -> None:
        self.said.append("undecodable")

    def store_size(self, resource: str, objects: int) -> None:
        self.size = objects

    def handler_failed(self, resource: str) -> None:
        self.said.append("handler failed")


def make_informer(client: ScriptedClient, **kwargs: Any) -> SharedInformer[ConfigMap]:
    return SharedInformer(CONFIGMAPS, client, **{"chance": lambda: 0.0, **kwargs})  # type: ignore[arg-type]


@asynccontextmanager
async def following(informer: SharedInformer[ConfigMap]) -> AsyncIterator[None]:
    """The informer runs while the block does."""
    task = asyncio.create_task(informer.run(), name="informer")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), f"the informer ended by itself: {task.exception()!r}"


def error(code: int, body: Mapping[str, Any] | None = None, *, retry_after: str | None = None) -> ApiError:
    """What the client raises for such an answer."""
    return from_response(code, json.dumps(body).encode(), retry_after=retry_after)
