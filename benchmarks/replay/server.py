"""Answers discovery, lists, watches, creates and merge patches, forgets Events, and refuses all other requests."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any

import msgspec
from aiohttp import web

from benchmarks import fleet
from benchmarks.controllers import cpu_s, rss_mb
from benchmarks.fleet import Size
from benchmarks.replay.store import Collection, Line, Store, refused

IGNORED = ("leases", "events", "selfsubjectaccessreviews", "selfsubjectreviews")
"""The resources whose writes are not a write of a reconciliation."""


class Statistics:
    def __init__(self) -> None:
        self._pid = 0
        self._started = 0.0
        self._cpu_s = 0.0
        self._first_write: dict[str, float] = {}
        self._first_watch = 0.0
        self.requests: Counter[str] = Counter()
        self._awaited: dict[str, asyncio.Future[float]] = {}

    def begin(self, pid: int) -> None:
        """Count from now on. `pid` is the process of the client, or 0 if it is not known."""
        self._pid, self._started, self._cpu_s = pid, time.monotonic(), time.process_time()
        self._first_write, self._first_watch = {}, 0.0
        self.requests.clear()

    def note(self, verb: str, plural: str, subresource: str) -> None:
        self.requests[f"{verb} {plural}{f'/{subresource}' if subresource else ''}"] += 1
        if verb == "watch":
            self._first_watch = self._first_watch or time.monotonic()
        if self._first_write or verb in ("get", "list", "watch") or plural in IGNORED:
            return
        self._first_write = {"wall_s": time.monotonic() - self._started}
        if self._pid:
            self._first_write |= {"cpu_s": cpu_s(self._pid), "rss_mb": rss_mb(self._pid)}

    def note_create(self, owner: str, at: float) -> None:
        if (awaited := self._awaited.pop(owner, None)) and not awaited.done():
            awaited.set_result(at)

    async def next_create(self, owner: str, within_s: float) -> float:
        self._awaited[owner] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(within_s):
            return await self._awaited[owner]

    def report(self) -> dict[str, Any]:
        return {
            "server_cpu_s": time.process_time() - self._cpu_s,
            "requests": dict(self.requests.most_common()),
            "first_write": self._first_write,
            "first_watch_at": self._first_watch,
        }


VERBS = {"GET": "get", "POST": "create", "PATCH": "patch"}
REVIEWS = ("selfsubjectaccessreviews", "selfsubjectreviews")
VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
PATH = re.compile(
    r"/apis?(/(?P<group>[a-z0-9.-]+\.[a-z0-9.]+|apps))?/(?P<version>v[^/]+)(/namespaces/(?P<namespace>[^/]+))?"
    r"(/(?P<plural>[^/]+))?(/(?P<name>[^/]+))?(/(?P<subresource>[^/]+))?"
)
SLICE = 100
BOOKMARK_EVERY_S = 60.0
INITIAL_END = b',"annotations":{"k8s.io/initial-events-end":"true"}'


class Server:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.seen = Statistics()

    async def version(self, _: web.Request) -> web.Response:
        return _answer(msgspec.json.encode(VERSION))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body, arrived = await request.read(), time.perf_counter()
        found = PATH.fullmatch(request.path)
        if found is None or request.method not in VERBS:
            raise refused(web.HTTPNotImplemented, "NotImplemented")
        group, version, namespace, plural, name, subresource = (
            found[part] or "" for part in ("group", "version", "namespace", "plural", "name", "subresource")
        )
        if not plural:
            return self._discovery(f"{group}/{version}")
        verb = VERBS[request.method]
        if verb == "get" and not name:
            verb = "watch" if request.query.get("watch") else "list"
        self.seen.note(verb, plural, subresource)
        if plural in REVIEWS:
            return _answer(b'{"status":{"allowed":true,"userInfo":{"username":"bench"}}}', 201)
        if plural == "events":
            return _answer(body, 201)
        collection = self.store.collections.get((group, plural))
        if collection is None:
            raise refused(web.HTTPNotFound, "NotFound")
        match verb:
            case "list":
                return self._list(collection, namespace, request)
            case "watch":
                return await self._watch(collection, namespace, request)
            case "get":
                return _answer(self.store.item(collection, (namespace, name)).render())
            case "create":
                self.seen.note_create(_owner_of(body), arrived)
                return _answer(self.store.create(collection, namespace, body), 201)
        if request.content_type != "application/merge-patch+json":
            raise refused(web.HTTPUnsupportedMediaType, "UnsupportedMediaType")
        key, only_status = (namespace, name), subresource == "status"
        return _answer(self.store.patch(collection, key, body, only_status=only_status))

    def _discovery(self, api_version: str) -> web.Response:
        resources = [
            {"name": plural, "kind": each.kind, "namespaced": True, "verbs": list(VERBS.values())}
            for (_, plural), each in self.store.collections.items()
            if each.api_version == api_version
        ]
        if not resources:
            raise refused(web.HTTPNotFound, "NotFound")
        found = {"kind": "APIResourceList", "groupVersion": api_version, "resources": resources}
        return _answer(msgspec.json.encode(found))

    def _list(self, collection: Collection, namespace: str, request: web.Request) -> web.Response:
        """Return the first objects, up to the limit. There are no further pages: the controller reads by watches."""
        keys = collection.keys(namespace)[: int(request.query.get("limit", 0)) or None]
        items = b",".join(collection.items[key].render() for key in keys)
        head = collection.head.replace(b'","apiVersion"', b'List","apiVersion"')
        return _answer(b'{%b,"metadata":{"resourceVersion":"%d"},"items":[%b]}' % (head, self.store.version, items))

    async def _watch(self, collection: Collection, namespace: str, request: web.Request) -> web.StreamResponse:
        queue: asyncio.Queue[Line] = asyncio.Queue()
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if "sendInitialEvents" not in request.query:
            missed = collection.since(int(request.query.get("resourceVersion") or self.store.version))
            if missed is None:
                await response.write(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n')
                return response
            for line in missed:
                queue.put_nowait(line)
        collection.watches.add(queue)
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", 600))):
                if "sendInitialEvents" in request.query:
                    await self._send_objects(collection, namespace, response)
                while True:
                    if lines := await self._next_lines(collection, namespace, queue):
                        await response.write(lines)
        except (TimeoutError, ConnectionResetError):
            return response
        finally:
            collection.watches.discard(queue)

    async def _send_objects(self, collection: Collection, namespace: str, response: web.StreamResponse) -> None:
        keys, version = collection.keys(namespace), self.store.version
        for start in range(0, len(keys), SLICE):
            found = [collection.items[key].render() for key in keys[start : start + SLICE] if key in collection.items]
            await response.write(b"".join(b'{"type":"ADDED","object":%b}\n' % body for body in found))
            await asyncio.sleep(0)
        await response.write(_bookmark(collection, version, INITIAL_END))

    async def _next_lines(self, collection: Collection, namespace: str, queue: asyncio.Queue[Line]) -> bytes:
        """Return the changes that wait, or a bookmark if nothing changes for BOOKMARK_EVERY_S."""
        try:
            async with asyncio.timeout(BOOKMARK_EVERY_S):
                lines = [await queue.get()]
        except TimeoutError:
            return _bookmark(collection, self.store.version)
        while not queue.empty():
            lines.append(queue.get_nowait())
        return b"".join(line for changed, line in lines if not namespace or changed == namespace)


def _bookmark(collection: Collection, version: int, more: bytes = b"") -> bytes:
    meta = b'"metadata":{"resourceVersion":"%d"%b}' % (version, more)
    return b'{"type":"BOOKMARK","object":{%b,%b}}\n' % (collection.head, meta)


def _answer(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _owner_of(body: bytes) -> str:
    metadata: dict[str, Any] = msgspec.json.decode(body)["metadata"]
    owners = metadata.get("ownerReferences")
    return str(owners[0]["uid"]) if owners else ""


TICK_S = 0.01
CREATED_WITHIN_S = 30.0


class Load:
    def __init__(self, server: Server, size: Size) -> None:
        self._server = server
        self._size = size
        self._chance = Random(1)
        self._vmis = server.store.collections["kubevirt.io", "virtualmachineinstances"]
        self._keys = list(self._vmis.items)
        self._running: set[asyncio.Task[None]] = set()
        self._changes = 0
        self._reactions_ms: list[float] = []
        self._missed = 0

    def control(self, what: str, params: Mapping[str, str]) -> Any:
        """Do what a client asks for, and return the answer. Raises KeyError for an unknown request."""
        numbers = {name: float(value) for name, value in params.items()}
        match what:
            case "begin":
                return self._server.seen.begin(int(numbers.get("pid", 0)))
            case "report":
                return self._server.seen.report()
            case "churn":
                return self._start(self._churn(numbers["rate"], numbers["seconds"]))
            case "react":
                return self._start(self._react(int(numbers["count"]), numbers["pause"]))
            case "lose-one":
                return self._server.store.remove(self._vmis, next(iter(self._vmis.items)))
            case "load":
                counts = {"running": len(self._running), "changes": self._changes, "missed": self._missed}
                return counts | {"reactions_ms": self._reactions_ms}
        raise KeyError(what)

    def _start(self, load: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(load)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _churn(self, rate: float, seconds: float) -> None:
        """Change random VMIs at this rate. Each change has a new resourceVersion and nothing else."""
        loop = asyncio.get_running_loop()
        started, self._changes = loop.time(), 0
        while (elapsed_s := loop.time() - started) < seconds:
            while self._changes < elapsed_s * rate:
                key = self._chance.choice(self._keys)
                if key in self._vmis.items:
                    self._server.store.touch(self._vmis, key)
                self._changes += 1
            await asyncio.sleep(TICK_S)

    async def _react(self, count: int, pause_s: float) -> None:
        """Delete VMIs of replica sets, and measure the time until the request that creates the next VMI arrives."""
        self._reactions_ms, self._missed = [], 0
        for number in self._chance.sample(range(self._size.set_vmis), min(count, self._size.set_vmis)):
            key = self._keys[number]
            if key not in self._vmis.items:
                continue
            started = time.perf_counter()
            self._server.store.remove(self._vmis, key)
            try:
                owner = fleet.uid(1, number // self._size.vmis_of_set)
                arrived = await self._server.seen.next_create(owner, CREATED_WITHIN_S)
            except TimeoutError:
                self._missed += 1
            else:
                self._reactions_ms.append((arrived - started) * 1000)
            await asyncio.sleep(pause_s)
