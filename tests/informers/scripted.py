"""A fake ApiClient that sends prepared answers to an informer, for tests in virtual time.

There is no server: the fake checks nothing and stores no objects. After the last prepared answer, each request gets a
watch that never ends.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from informers.errors import ApiError, TransportError, from_response
from informers.informer import SharedInformer
from informers.instruments import Instruments
from informers.store import Change, Removed
from tests.informers.subjects import CONFIGMAPS, ConfigMap


class Stream(NamedTuple):
    """The server's answer to a watch.

    The watch sends the `chunks`. A number in `chunks` is a pause in seconds. After the last chunk, the watch ends in
    the way that `end` says. If `end` is None, the watch stays open.
    """

    chunks: tuple[bytes | float, ...] = ()
    end: Exception | str | None = None


REFUSED = TransportError("cannot connect to host:6443: Connection refused", sent=False)
END = "end"


def stream(*chunks: bytes | float, end: Exception | str | None = None) -> Stream:
    return Stream(chunks, end)


class SentRequest(NamedTuple):
    at: float
    path: str
    params: Mapping[str, str]


class ScriptedClient:
    """Replaces an ApiClient. `answers` are pages (bytes), streams and errors."""

    def __init__(self, *answers: bytes | Stream | Exception, streaming: bool = False) -> None:
        self.requests: list[SentRequest] = []
        self._answers = list(answers)
        self._streaming = streaming

    async def request(self, method: str, path: str, *, params: Mapping[str, str], **_: Any) -> bytes:
        assert method == "GET"
        answer = self._next(path, params)
        assert isinstance(answer, bytes), f"the informer requested a page, but the script has {answer}"
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], idle_timeout_s: float, may_pause: Callable[[], bool]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        if "sendInitialEvents" in params and not self._streaming:
            self.requests.append(self._sent_request(path, params))
            raise from_response(422, b"")
        answer = self._next(path, params)
        assert isinstance(answer, Stream), f"the informer requested a watch, but the script has {answer!r}"
        chunks = _chunks(answer, idle_timeout_s)
        try:
            yield chunks
        finally:
            await chunks.aclose()

    def times(self) -> list[float]:
        return [request.at for request in self.requests]

    def answer_next(self, answer: bytes | Stream | Exception) -> None:
        """Send this answer to the next request."""
        self._answers.insert(0, answer)

    def _next(self, path: str, params: Mapping[str, str]) -> bytes | Stream:
        self.requests.append(self._sent_request(path, params))
        answer = self._answers.pop(0) if self._answers else Stream()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @staticmethod
    def _sent_request(path: str, params: Mapping[str, str]) -> SentRequest:
        return SentRequest(asyncio.get_running_loop().time(), path, dict(params))


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


class RecordedInstruments(Instruments):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.progressed = 0
        self.size = 0

    def listed(self, resource: str, *, reason: str) -> None:
        self.calls.append(f"listed: {reason}")

    def watch_ended(self, resource: str, *, reason: str) -> None:
        self.calls.append(f"ended: {reason}")

    def progress(self, resource: str) -> None:
        self.progressed += 1

    def decode_failed(self, resource: str) -> None:
        self.calls.append("undecodable")

    def store_size(self, resource: str, objects: int) -> None:
        self.size = objects

    def handler_failed(self, resource: str) -> None:
        self.calls.append("handler failed")


def make_informer(client: ScriptedClient, **kwargs: Any) -> SharedInformer[ConfigMap]:
    return SharedInformer(CONFIGMAPS, client, **{"chance": lambda: 0.0, **kwargs})  # type: ignore[arg-type]


def recorded_informer(
    client: ScriptedClient, **kwargs: Any
) -> tuple[SharedInformer[ConfigMap], list[Change[ConfigMap]]]:
    """An informer, and the list of all changes that its handler receives."""
    informer = make_informer(client, **kwargs)
    changes: list[Change[ConfigMap]] = []
    informer.add_handler(changes.append)
    return informer, changes


async def follow(client: ScriptedClient, *, seconds: float, **kwargs: Any) -> SharedInformer[ConfigMap]:
    """Run an informer for some seconds."""
    informer = make_informer(client, **kwargs)
    async with following(informer):
        await asyncio.sleep(seconds)
    return informer


@asynccontextmanager
async def following(informer: SharedInformer[ConfigMap]) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run(), name="informer")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), f"the informer ended by itself: {task.exception()!r}"


def error(code: int, body: Mapping[str, Any] | None = None, *, retry_after: str | None = None) -> ApiError:
    """The exception that the client raises for an answer with this code and body."""
    return from_response(code, json.dumps(body).encode(), retry_after=retry_after)


def names(changes: Iterable[Change[Any]]) -> list[str]:
    """The changes that handlers have received, for example `Added a`."""
    objects = [change.last_known if isinstance(change, Removed) else change.new for change in changes]
    return [f"{type(change).__name__} {obj.metadata.name}" for change, obj in zip(changes, objects, strict=True)]
