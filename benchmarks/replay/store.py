"""The objects of the replay server, and the writes that change them."""

import asyncio
from collections import deque
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from benchmarks.fleet import Shape, Size, shapes
from controller.kinds import KINDS, accesses

HISTORY = 50_000
"""The number of changes that a new watch can start from. An older resourceVersion is expired."""

Document = dict[str, Any]
Key = tuple[str, str]
Line = tuple[str, bytes]
"""The namespace of a changed object, and the line of the watch."""


class Item:
    """One object. It is rendered from its shape, until a client changes the object."""

    __slots__ = ("body", "number", "shape", "version")

    def __init__(self, version: int, *, body: bytes = b"", shape: Shape | None = None, number: int = 0) -> None:
        self.version, self.body, self.shape, self.number = version, body, shape, number

    def render(self) -> bytes:
        return self.body if self.shape is None else self.shape.render(self.number, self.version)


class Collection:
    def __init__(self, api_version: str, kind: str) -> None:
        self.api_version, self.kind = api_version, kind
        self.head = f'"kind":"{kind}","apiVersion":"{api_version}"'.encode()
        self.items: dict[Key, Item] = {}
        self.watches: set[asyncio.Queue[Line]] = set()
        self._history: deque[tuple[int, Line]] = deque(maxlen=HISTORY)
        self._forgotten = 0

    def publish(self, event: str, namespace: str, version: int, body: bytes) -> None:
        line = namespace, b'{"type":"%b","object":%b}\n' % (event.encode(), body)
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0][0]
        self._history.append((version, line))
        for watch in self.watches:
            watch.put_nowait(line)

    def since(self, version: int) -> list[Line] | None:
        return None if version < self._forgotten else [line for at, line in self._history if at > version]

    def keys(self, namespace: str) -> list[Key]:
        return [key for key in self.items if not namespace or key[0] == namespace]


class Store:
    def __init__(self, size: Size) -> None:
        self.version = 1_000
        resources = [each.resource for each in accesses()] + [kind.resource() for kind in KINDS]
        self.collections = {(each.group, each.plural): Collection(each.api_version, each.kind) for each in resources}
        self.collections["coordination.k8s.io", "leases"] = Collection("coordination.k8s.io/v1", "Lease")
        for shape in shapes(size).values():
            collection = self.collections[shape.group, shape.plural]
            for number in range(shape.count):
                texts = shape.texts(number)
                key = texts["namespace"], texts["name"]
                collection.items[key] = Item(self._next(), shape=shape, number=number)

    def item(self, collection: Collection, key: Key) -> Item:
        if found := collection.items.get(key):
            return found
        raise refused(web.HTTPNotFound, "NotFound")

    def create(self, collection: Collection, namespace: str, body: bytes) -> bytes:
        document = msgspec.json.decode(body)
        meta = document["metadata"]
        meta.setdefault("name", f"{meta.get('generateName', '')}{self.version:x}")
        key = (namespace, meta["name"])
        if key in collection.items:
            raise refused(web.HTTPConflict, "AlreadyExists")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta |= {"namespace": namespace, "uid": f"ffffffff-0000-4000-8000-{self.version:012x}"}
        meta |= {"creationTimestamp": now, "generation": 1}
        return self._put(collection, key, document, "ADDED")

    def patch(self, collection: Collection, key: Key, body: bytes, *, only_status: bool) -> bytes:
        old: Document = msgspec.json.decode(self.item(collection, key).render())
        document = _merged(old, msgspec.json.decode(body))
        if any(document["metadata"][name] != old["metadata"][name] for name in ("uid", "resourceVersion")):
            raise refused(web.HTTPConflict, "Conflict")
        if only_status:
            document = {**old, "status": document["status"]}
        return msgspec.json.encode(old) if document == old else self._put(collection, key, document, "MODIFIED")

    def touch(self, collection: Collection, key: Key) -> None:
        """Publish a change of an object that changes only its resourceVersion."""
        item = collection.items[key]
        if item.shape is None:
            self._put(collection, key, msgspec.json.decode(item.body), "MODIFIED")
            return
        item.version = self._next()
        collection.publish("MODIFIED", key[0], item.version, item.render())

    def remove(self, collection: Collection, key: Key) -> None:
        document = msgspec.json.decode(collection.items[key].render())
        self._put(collection, key, document, "DELETED")
        del collection.items[key]

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _put(self, collection: Collection, key: Key, document: Document, event: str) -> bytes:
        version = self._next()
        document["metadata"]["resourceVersion"] = str(version)
        body = msgspec.json.encode(document)
        collection.items[key] = Item(version, body=body)
        collection.publish(event, key[0], version, body)
        return body


def refused(error: type[web.HTTPError], reason: str) -> web.HTTPError:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": error.status_code, "reason": reason}
    return error(text=msgspec.json.encode(status).decode(), content_type="application/json")


def _merged(old: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    base = old if isinstance(old, dict) else {}
    merged = {key: value for key, value in base.items() if key not in change}
    return merged | {key: _merged(base.get(key), value) for key, value in change.items() if value is not None}
