"""The API server of the simulation: the in-memory server of the unit tests, with lists in pages, watches, policies,
discovery, and an audit of all changes and all refused requests.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from informers.errors import StatusError
from informers.meta import ObjectKey
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.requests import AnyResource, Document, Request, refusal
from tests.simulation.faults import Faults, Past
from tests.simulation.loop import SimulatedLoop
from tests.simulation.policies import Policies

BOOKMARK_S = 60.0
OURS = "vmherd"
"""The beginning of the names of our processes in the audit."""


class Call(NamedTuple):
    """One request as it arrives. `actor` is who sends it."""

    actor: str
    method: str
    path: str
    params: Mapping[str, str]
    body: bytes
    content_type: str
    accept: str


class Answer(NamedTuple):
    code: int
    body: bytes
    headers: Mapping[str, str] = {}


class Change(NamedTuple):
    """A change of one object. `before` is None for a creation, and `after` is None for a removal."""

    at: float
    actor: str
    resource: AnyResource
    key: ObjectKey
    before: Document | None
    after: Document | None
    last: Document
    """The object after the change, or the removed object."""

    @property
    def is_ours(self) -> bool:
        return self.actor.startswith(OURS)


class Asked(NamedTuple):
    """A write request of ours, with its answer."""

    at: float
    actor: str
    verb: str
    resource: AnyResource
    key: ObjectKey
    subresource: str
    code: int
    dry_run: bool
    message: str
    changed: bool
    body: Any


class _Line(NamedTuple):
    version: int
    namespace: str
    data: bytes


class Watch:
    """One open watch on the server. It sends lines from `position` on."""

    def __init__(self, server: "SimulatedServer", resource: AnyResource, namespace: str, position: int) -> None:
        self.resource = resource
        self.namespace = namespace
        self.position = position
        self.is_open = True
        self.lags = False
        self._server = server
        self._send: Callable[[bytes], None] = lambda data: None
        self._end: Callable[[], None] = lambda: None
        self.first = b""

    def connect(self, send: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self._send, self._end = send, end
        if self.first:
            send(self.first)
        self._server.follow(self)

    def send(self, data: bytes) -> None:
        if self.is_open:
            self._send(data)

    def end(self) -> None:
        if self.is_open:
            self._end()
            self.close()

    def close(self) -> None:
        self.is_open = False


class SimulatedServer(FakeApiServer):
    """`changes` has all changes, and `asked` all write requests of ours."""

    def __init__(self, *, faults: Faults, chance: Random, **options: Any) -> None:
        super().__init__(latency_s=0, **options)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.loop = loop
        self.faults = faults
        self.chance = chance
        self.changes: list[Change] = []
        self.asked: list[Asked] = []
        self.requests_of: dict[str, int] = {}
        self.policies = Policies(faults)
        self.on_change: list[Callable[[Change], None]] = []
        self.actor = "user"
        self.compacted = 0
        self.past: Past | None = None
        self._lines: dict[AnyResource, list[_Line]] = {}
        self._watches: list[Watch] = []
        self._pages: dict[str, tuple[list[bytes], str]] = {}

    # Requests

    def serve(self, call: Call) -> Answer:
        now = self.loop.time()
        self.requests_of[call.actor] = self.requests_of.get(call.actor, 0) + 1
        if self.faults.hit("throttle", now, self.chance):
            return THROTTLED
        broken = self.faults.hit("error", now, self.chance)
        if broken is not None and self.chance.random() < 0.5:
            return self._broken()
        with self.acting(call.actor):
            try:
                answer = Answer(200, self._carry_out(call))
            except StatusError as error:
                answer = Answer(error.code, _status(error.code, error.reason, str(error), error.causes))
        return self._broken() if broken is not None else answer

    def _broken(self) -> Answer:
        code = self.chance.choice((500, 503, 504))
        return Answer(code, _status(code, "InternalError", "the server is broken"))

    def _carry_out(self, call: Call) -> bytes:
        if call.path == "/version":
            return b'{"major":"1","minor":"34"}'
        if call.method == "POST" and call.path.endswith("accessreviews"):
            return b'{"status":{"allowed":true}}'
        if call.method == "GET" and (found := self._discovered(call.path)) is not None:
            return found
        resource, key, subresource = self._route(call.path)
        if call.method == "GET":
            if key.name:
                if any(each.target == resource.plural for each in self.faults.now("unreadable", self.loop.now)) and (
                    crc32(key.name.encode()) % 2
                ):
                    raise refusal(500, "InternalError", "conversion webhook failed")
                return msgspec.json.encode(self.document(resource, key))
            return self._page(resource, key.namespace, call)
        return self._write(call, resource, key, subresource)

    def _write(self, call: Call, resource: AnyResource, key: ObjectKey, subresource: str) -> bytes:
        verb = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}[call.method]
        body = msgspec.json.decode(call.body) if call.body else {}
        is_dry = "dryRun" in call.params
        if verb == "create":
            key = ObjectKey(key.namespace, body["metadata"]["name"])
        code, message, version, sent = 200, "", len(self.changes), body
        try:
            if call.actor.startswith(OURS):
                body = self.policies.admit(self.loop.time(), verb, resource, subresource, body)
            return msgspec.json.encode(self._act(verb, resource, key, subresource, body, is_dry=is_dry))
        except StatusError as error:
            code, message = error.code, str(error)
            raise
        finally:
            if call.actor.startswith(OURS):
                asked = (verb, resource, key, subresource, code, is_dry, message, len(self.changes) > version)
                self.asked.append(Asked(self.loop.time(), call.actor, *asked, sent))

    def _act(
        self, verb: str, resource: AnyResource, key: ObjectKey, subresource: str, body: Any, *, is_dry: bool
    ) -> Document:
        match verb:
            case "create":
                return self._create(resource, key, body, dry_run=is_dry)
            case "patch":
                return self._patch(resource, key, body, subresource)
            case "update":
                return self.on_update(Request("update", resource, key, subresource))
            case _:
                wanted = body.get("preconditions") or {}
                conditions = wanted.get("uid", ""), wanted.get("resourceVersion", "")
                return self._delete(resource, key, *conditions, body.get("propagationPolicy", ""))

    # Lists and watches

    def _page(self, resource: AnyResource, namespace: str, call: Call) -> bytes:
        """One page of a list. All pages of a list show the same version."""
        limit, token = int(call.params.get("limit", 0)), call.params.get("continue", "")
        if token:
            if token not in self._pages:
                raise refusal(410, "Expired", "The provided continue parameter is too old")
            items, version = self._pages.pop(token)
        else:
            past = self._past() if call.params.get("resourceVersion") == "0" else None
            held = sorted((past.of(resource) if past else self._of(resource)).items())
            fields = call.params.get("fieldSelector", "")
            name = fields.partition("metadata.name=")[2]
            found = [each for key, each in held if namespace in ("", key.namespace) and name in ("", key.name)]
            if "PartialObjectMetadata" in call.accept:
                found = [{"metadata": each["metadata"]} for each in found]
            items, version = [msgspec.json.encode(each) for each in found], str((past or self).version)
        meta: Document = {"resourceVersion": version}
        if limit and len(items) > limit:
            meta["continue"] = f"{version}-{len(items) - limit}-{len(self._pages)}"
            self._pages[meta["continue"]] = (items[limit:], version)
            items = items[:limit]
        head = msgspec.json.encode({"kind": "List", "metadata": meta})
        return head[:-1] + b',"items":[' + b",".join(items) + b"]}"

    def watch(self, call: Call) -> Answer | Watch:
        """Open a watch, or return the error."""
        now = self.loop.now
        resource, key, _ = self._route(call.path)
        if self.faults.hit("throttle", now, self.chance):
            return THROTTLED
        if self.faults.hit("stale", now, self.chance):
            return TOO_NEW
        version = call.params.get("resourceVersion", "")
        past = self._past()
        newest = past.version if past else self.version
        watch = Watch(self, resource, key.namespace, newest)
        if call.params.get("sendInitialEvents"):
            watch.first = self._initial(resource, key.namespace, past)
        elif int(version) < self.compacted:
            watch.first = EXPIRED
            self.loop.call_later(0.001, watch.end)
            return watch
        elif int(version) > newest:
            return TOO_NEW
        else:
            watch.position = int(version)
        if past is not None:
            self._lag(watch, past, lists=bool(call.params.get("sendInitialEvents")))
        self._bookmark_later(watch)
        self.loop.call_later(float(call.params.get("timeoutSeconds", 300)), watch.end)
        return watch

    def _initial(self, resource: AnyResource, namespace: str, past: Past | None) -> bytes:
        shown = past.of(resource) if past else self._of(resource)
        held = [each for key, each in shown.items() if namespace in ("", key.namespace)]
        lines = [b'{"type":"ADDED","object":' + msgspec.json.encode(each) + b"}\n" for each in held]
        return b"".join(lines) + (b"" if past else _bookmark_line(self.version, ends=True))

    # The older server

    def fall_behind(self, end: float) -> None:
        """From now until `end`, some requests reach a server that shows the present state."""
        self.past = Past(self.version, end, {each: dict(self._of(each)) for each in self._served.values()})

    def _past(self) -> Past | None:
        """The state of the server that a new request reaches, if it is the older one."""
        return self.past if self.past and self.faults.hit("older", self.loop.now, self.chance) else None

    def _lag(self, watch: Watch, past: Past, *, lists: bool) -> None:
        """The watch sends nothing new until the server has the present state."""
        watch.lags = True

        def catch_up() -> None:
            watch.lags = False
            self._catch_up(watch)
            if lists:
                watch.send(_bookmark_line(watch.position, ends=True))

        self.loop.call_later(past.end - self.loop.now + 0.02, catch_up)

    def follow(self, watch: Watch) -> None:
        """Send the events that the watch has not seen, and each later event."""
        self._watches = [each for each in self._watches if each.is_open]
        self._watches.append(watch)
        self._catch_up(watch)

    def _catch_up(self, watch: Watch) -> None:
        if watch.lags or self.faults.hit("stale", self.loop.now, self.chance):
            return
        lines = self._lines.get(watch.resource, [])
        start = len(lines)
        while start and lines[start - 1].version > watch.position:
            start -= 1
        for line in lines[start:]:
            if watch.namespace in ("", line.namespace) and not self._misses(watch, line):
                watch.send(line.data)
        watch.position = self.version

    def _misses(self, watch: Watch, line: _Line) -> bool:
        missed = self.faults.now("missed", self.loop.now)
        is_hit = any(each.target == watch.resource.plural and self.chance.random() < each.rate for each in missed)
        return is_hit and (line.data.startswith(b'{"type":"DELETED"') or b'"deletionTimestamp":"' in line.data)

    def catch_up(self) -> None:
        """Let all watches see the newest state."""
        for watch in self._watches:
            if watch.is_open:
                self._catch_up(watch)

    def _bookmark_later(self, watch: Watch) -> None:
        def send() -> None:
            if not watch.is_open:
                return
            if not watch.lags and not self.faults.hit("stale", self.loop.now, self.chance):
                watch.send(_bookmark_line(watch.position))
            self._bookmark_later(watch)

        self.loop.call_later(BOOKMARK_S * self.chance.uniform(0.9, 1.1), send)

    def compact(self) -> None:
        """Forget old versions: watches from them, and pages of older lists, get a 410."""
        self.compacted = self.version
        self._pages.clear()

    # Discovery and storage

    def _discovered(self, path: str) -> bytes | None:
        if path.count("/") > 3 or (path.startswith("/api/") and path.count("/") > 2):
            return None
        names = [{"name": each.plural} for each in self._served.values() if each.group_path == path]
        return msgspec.json.encode({"resources": names}) if names else None

    @contextmanager
    def acting(self, actor: str) -> Iterator[None]:
        """The changes in this block are changes by `actor`."""
        before, self.actor = self.actor, actor
        try:
            yield
        finally:
            self.actor = before

    def _store(self, resource: AnyResource, key: ObjectKey, held: Document | None, new: Document) -> Document:
        before = self.version
        result = super()._store(resource, key, held, new)
        if self.version == before:
            return result
        event = self.events.pop()
        kind = b"DELETED" if event.deleted else b"ADDED" if held is None else b"MODIFIED"
        line = b'{"type":"' + kind + b'","object":' + event.body + b"}\n"
        self._lines.setdefault(resource, []).append(_Line(event.version, key.namespace, line))
        after = None if event.deleted else result
        change = Change(self.loop.time(), self.actor, resource, key, held, after, result)
        self.changes.append(change)
        for watch in self._watches:
            if watch.resource is resource and watch.is_open:
                self._catch_up(watch)
        for notify in self.on_change:
            notify(change)
        return result


def _status(code: int, reason: str, message: str, causes: tuple[str, ...] = ()) -> bytes:
    details = {"causes": [{"reason": each} for each in causes]}
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return msgspec.json.encode({**status, "details": details})


THROTTLED: Final = Answer(429, _status(429, "TooManyRequests", "too many requests"), {"Retry-After": "1"})
TOO_NEW: Final = Answer(
    504, _status(504, "Timeout", "Too large resource version", ("ResourceVersionTooLarge",)), {"Retry-After": "1"}
)
EXPIRED: Final = b'{"type":"ERROR","object":' + _status(410, "Expired", "too old resource version") + b"}\n"


def _bookmark_line(version: int, *, ends: bool = False) -> bytes:
    meta: Document = {"resourceVersion": str(version)}
    if ends:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return b'{"type":"BOOKMARK","object":' + msgspec.json.encode({"metadata": meta}) + b"}\n"
