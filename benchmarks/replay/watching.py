"""Lists in pages, watches, and streaming lists of the replay server."""

from __future__ import annotations

import asyncio
from collections import deque

from benchmarks.replay.collection import Collection, Key
from benchmarks.replay.http import Answer, Connection, Request
from benchmarks.replay.state import Refused, State

SLICE = 100
"""The number of objects in one chunk of a streaming list."""

BOOKMARK_EVERY_S = 60.0
INITIAL_END = b',"annotations":{"k8s.io/initial-events-end":"true"}'


def list_page(state: State, collection: Collection, namespace: str, request: Request) -> Answer:
    """Return one page. The token has the position of the next object and the resourceVersion of the first page."""
    limit = int(request.params.get("limit", 0)) or len(collection.items) or 1
    start, version = 0, state.version
    if token := request.params.get("continue"):
        start, version = map(int, token.split("."))
    keys = _selected(collection, namespace, request)
    page = keys[start : start + limit]
    left = len(keys) - start - len(page)
    rest = b',"continue":"%d.%d","remainingItemCount":%d' % (start + limit, version, left) if left > 0 else b""
    items = b",".join([collection.items[key].render() for key in page])
    head = collection.head.replace(b'","apiVersion"', b'List","apiVersion"')
    return Answer(200, b'{%b,"metadata":{"resourceVersion":"%d"%b},"items":[%b]}' % (head, version, rest, items))


def _selected(collection: Collection, namespace: str, request: Request) -> list[Key]:
    """Return the keys of the list. The only supported field selector is that for one name."""
    keys = collection.keys(namespace)
    field, _, name = request.params.get("fieldSelector", "").partition("=")
    return [key for key in keys if key[1] == name] if field == "metadata.name" else keys


class Watch:
    """One watch. It begins with a streaming list if the client asks for that list."""

    def __init__(self, state: State, collection: Collection, namespace: str, request: Request) -> None:
        self._state = state
        self._collection = collection
        self._namespace = namespace
        self._params = request.params
        self._lines: deque[bytes] = deque()
        self._wakes = asyncio.Event()

    async def __call__(self, connection: Connection) -> None:
        self._collection.listeners.add(self._take)
        try:
            async with asyncio.timeout(float(self._params.get("timeoutSeconds", 600))):
                await self._send_start(connection)
                await self._send_changes(connection)
        except TimeoutError:
            connection.end()
        except Refused as error:
            status = b'{"kind":"Status","code":%d,"reason":"%b"}' % (error.code, error.reason.encode())
            connection.send(b'{"type":"ERROR","object":%b}\n' % status)
            connection.end()
        finally:
            self._collection.listeners.discard(self._take)

    def _take(self, namespace: str, line: bytes) -> None:
        if not self._namespace or namespace == self._namespace:
            self._lines.append(line)
            self._wakes.set()

    async def _send_start(self, connection: Connection) -> None:
        if "sendInitialEvents" in self._params:
            await self._send_objects(connection)
            return
        missed = self._collection.since(int(self._params.get("resourceVersion") or self._state.version))
        if missed is None:
            raise Refused(410, "Expired", "the resourceVersion is too old")
        # Events that arrived since the registration are in the history too.
        self._lines.clear()
        for namespace, line in missed:
            self._take(namespace, line)

    async def _send_objects(self, connection: Connection) -> None:
        collection, version = self._collection, self._state.version
        keys = collection.keys(self._namespace)
        for start in range(0, len(keys), SLICE):
            found = [collection.items[key].render() for key in keys[start : start + SLICE] if key in collection.items]
            connection.send(b"".join([b'{"type":"ADDED","object":%b}\n' % body for body in found]))
            await connection.flows()
            await asyncio.sleep(0)
        connection.send(self._bookmark(version, INITIAL_END))

    async def _send_changes(self, connection: Connection) -> None:
        while True:
            while self._lines:
                lines = b"".join(self._lines)
                self._lines.clear()
                connection.send(lines)
                await connection.flows()
            self._wakes.clear()
            try:
                async with asyncio.timeout(BOOKMARK_EVERY_S):
                    await self._wakes.wait()
            except TimeoutError:
                connection.send(self._bookmark(self._state.version))

    def _bookmark(self, version: int, more: bytes = b"") -> bytes:
        meta = b'"metadata":{"resourceVersion":"%d"%b}' % (version, more)
        return b'{"type":"BOOKMARK","object":{%b,%b}}\n' % (self._collection.head, meta)
