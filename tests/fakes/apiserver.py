"""An API server's storage in memory: writes are checked and answered as the real one does, and go wrong on request.

Versions grow with every write, of whatever kind. Each write leaves an event, which caches take in as late as a test
likes (`LaggingCache`). A request takes `latency_s`; what it does, it does half-way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from copy import deepcopy
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from informers.client import JSON_PATCH
from informers.errors import ApiError, Status, StatusCause, StatusDetails, StatusError, TransportError, from_status
from informers.meta import KubeObject, ObjectKey
from informers.resource import Resource
from informers.store import Change, Indexes, Store

T = TypeVar("T", bound=KubeObject)

Document: TypeAlias = dict[str, Any]
AnyResource: TypeAlias = Resource[Any]
CREATED = "2026-08-01T12:00:00Z"


class Lost(Enum):
    """The connection breaks, and the client cannot tell which of these it was."""

    BEFORE = "before the server did anything"
    AFTER = "after the server did it"


class Garbled(NamedTuple):
    """Something in between answers with success, after the server did what it was asked."""

    body: bytes = b"<html>welcome</html>"


class FailedAfter(NamedTuple):
    """The server did it, and answers that it failed."""

    error: ApiError


Fault: TypeAlias = Lost | Garbled | FailedAfter | ApiError
"""An error by itself is the server's answer, which did nothing."""


class Request(NamedTuple):
    verb: str
    resource: AnyResource
    key: ObjectKey
    subresource: str = ""

    @property
    def is_write(self) -> bool:
        return self.verb != "get"


class Event(NamedTuple):
    """What a watch would tell: the object's new state, or its last one where `deleted`."""

    resource: AnyResource
    deleted: bool
    version: int
    body: bytes


def refusal(code: int, reason: str, message: str, *causes: str, retry_after_s: int | None = None) -> StatusError:
    """The error that the client makes of such an answer."""
    details = StatusDetails(causes=tuple(map(StatusCause, causes)), retry_after_seconds=retry_after_s)
    return from_status(Status(kind="Status", reason=reason, message=message, code=code, details=details))


class FakeApiServer:
    """`disturb` is asked about each request and may return what goes wrong with it. `landed` hears of each write that
    happened, in the moment when it did, and of the object as it was before.

    `finalizers` are put on whatever is created of a resource, as admission would. `has_status` tells the resources with
    a status subresource.
    """

    def __init__(
        self,
        *,
        latency_s: float = 0.01,
        has_status: tuple[AnyResource, ...] = (),
        finalizers: Mapping[AnyResource, list[str]] | None = None,
    ) -> None:
        self.version = 100
        self.events: list[Event] = []
        self.requests: list[Request] = []
        self.quota: dict[AnyResource, int] = {}
        self.terminating: set[str] = set()
        self.disturb: Callable[[Request], Fault | None] = lambda request: None
        self.landed: Callable[[Request, Document | None], None] = lambda request, before: None
        self.most_at_once = 0
        self._at_once = 0
        self._latency_s = latency_s
        self._has_status = has_status
        self.finalizers = finalizers or {}
        self._objects: dict[tuple[AnyResource, ObjectKey], Document] = {}

    async def get(self, resource: AnyResource, key: ObjectKey) -> bytes:
        return await self._serve(Request("get", resource, key), lambda: self._held(resource, key))

    async def create(self, resource: AnyResource, namespace: str, body: bytes) -> bytes:
        document = msgspec.json.decode(body)
        key = ObjectKey(namespace, document["metadata"]["name"])
        return await self._serve(Request("create", resource, key), lambda: self._create(resource, key, document))

    async def patch(
        self, resource: AnyResource, key: ObjectKey, body: bytes, *, content_type: str, subresource: str = ""
    ) -> bytes:
        patch = msgspec.json.decode(body)
        assert isinstance(patch, list) == (content_type == JSON_PATCH), "a JSON patch is a list, a merge patch is none"
        request = Request("patch", resource, key, subresource)
        return await self._serve(request, lambda: self._patch(resource, key, patch, subresource))

    async def delete(
        self, resource: AnyResource, key: ObjectKey, *, uid: str = "", propagation: str = "", version: str = ""
    ) -> bytes:
        return await self._serve(Request("delete", resource, key), lambda: self._delete(resource, key, uid, version))

    async def _serve(self, request: Request, act: Callable[[], Document]) -> bytes:
        self.requests.append(request)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        fault = self.disturb(request)
        try:
            await asyncio.sleep(self._latency_s / 2)
            answer = self._answer(request, fault, act)
            await asyncio.sleep(self._latency_s / 2)
        finally:
            self._at_once -= 1
        return answer

    def _answer(self, request: Request, fault: Fault | None, act: Callable[[], Document]) -> bytes:
        if isinstance(fault, ApiError):
            raise fault
        if fault is not Lost.BEFORE:
            with suppress(ApiError) if fault else nullcontext():
                before = self._objects.get((request.resource, request.key))
                answer = act()
                if request.is_write:
                    self.landed(request, before)
                if not fault:
                    return msgspec.json.encode(answer)
        if isinstance(fault, Garbled):
            return fault.body
        if isinstance(fault, FailedAfter):
            raise fault.error
        raise TransportError("the connection broke: Connection reset by peer", sent=True)

    def objects(self, resource: Resource[T]) -> list[T]:
        """What there is of a resource, in the order of creation."""
        return [
            resource.decode(msgspec.json.encode(held)) for (kind, _), held in self._objects.items() if kind is resource
        ]

    def find(self, resource: Resource[T], key: ObjectKey) -> T | None:
        held = self._objects.get((resource, key))
        return None if held is None else resource.decode(msgspec.json.encode(held))

    def document(self, resource: AnyResource, key: ObjectKey) -> Document:
        """All of an object, as the server has it."""
        return self._held(resource, key)

    def put(self, resource: AnyResource, document: Document) -> Document:
        """Create an object as somebody else, whatever is forbidden."""
        meta = document["metadata"]
        return self._add(resource, ObjectKey(meta["namespace"], meta["name"]), document)

    def change(self, resource: AnyResource, key: ObjectKey, patch: Document) -> None:
        """Change an object as somebody else: a merge patch of all of it."""
        held = self._held(resource, key)
        self._store(resource, key, held, merged(held, patch))

    def remove(self, resource: AnyResource, key: ObjectKey) -> None:
        """Delete an object as somebody else."""
        self._delete(resource, key, "", "")

    def finalize(self, resource: AnyResource, key: ObjectKey) -> None:
        """Take all finalizers off: what is being deleted goes."""
        self.change(resource, key, {"metadata": {"finalizers": None}})

    def _held(self, resource: AnyResource, key: ObjectKey) -> Document:
        try:
            return self._objects[resource, key]
        except KeyError:
            raise refusal(404, "NotFound", f'{resource.name} "{key.name}" not found') from None

    def _create(self, resource: AnyResource, key: ObjectKey, document: Document) -> Document:
        # Admission comes before storage: with a full quota even a name that is taken is answered 403.
        if key.namespace in self.terminating:
            why = f"unable to create new content in namespace {key.namespace} because it is being terminated"
            raise refusal(403, "Forbidden", f'{resource.name} "{key.name}" is forbidden: {why}', "NamespaceTerminating")
        used = sum(kind is resource and other.namespace == key.namespace for kind, other in self._objects)
        if used >= self.quota.get(resource, used + 1):
            raise refusal(403, "Forbidden", f'{resource.name} "{key.name}" is forbidden: exceeded quota: few')
        if (resource, key) in self._objects:
            raise refusal(409, "AlreadyExists", f'{resource.name} "{key.name}" already exists')
        return self._add(resource, key, document)

    def _add(self, resource: AnyResource, key: ObjectKey, document: Document) -> Document:
        made = deepcopy(document)
        own = {"namespace": key.namespace, "uid": f"uid-{self.version + 1}", "creationTimestamp": CREATED}
        made["metadata"] = {**made["metadata"], **own, "generation": 1}
        if resource in self.finalizers:
            made["metadata"]["finalizers"] = self.finalizers[resource]
        if resource in self._has_status:
            made.pop("status", None)
        return self._store(resource, key, {}, made)

    def _patch(self, resource: AnyResource, key: ObjectKey, patch: Any, subresource: str) -> Document:
        held = self._held(resource, key)
        if isinstance(patch, list):
            return self._store(resource, key, held, stepped(held, patch))
        meta = patch.get("metadata") or {}
        if (meta.get("resourceVersion") or held["metadata"]["resourceVersion"]) != held["metadata"]["resourceVersion"]:
            raise refusal(
                409, "Conflict", f'Operation cannot be fulfilled on {resource.name} "{key.name}": has been modified'
            )
        if subresource == "status":
            # The strategy for a status takes the status and puts everything else back as it was, the UID included.
            return self._store(resource, key, held, merged(held, {"status": patch.get("status")}))
        if meta.get("uid", held["metadata"]["uid"]) != held["metadata"]["uid"]:
            raise refusal(422, "Invalid", f"{resource.kind} is invalid: metadata.uid: field is immutable")
        if resource in self._has_status:
            patch = {field: value for field, value in patch.items() if field != "status"}
        return self._store(resource, key, held, merged(held, patch))

    def _delete(self, resource: AnyResource, key: ObjectKey, uid: str, version: str) -> Document:
        held = self._held(resource, key)
        meta = held["metadata"]
        if uid and uid != meta["uid"]:
            why = f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']})."
            raise refusal(409, "Conflict", f'Operation cannot be fulfilled on {resource.kind} "{key.name}": {why}')
        if version and version != meta["resourceVersion"]:
            why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record"
            raise refusal(409, "Conflict", f'Operation cannot be fulfilled on {resource.kind} "{key.name}": {why}')
        if not meta.get("deletionTimestamp"):
            self._store(resource, key, held, merged(held, {"metadata": {"deletionTimestamp": CREATED}}))
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _store(self, resource: AnyResource, key: ObjectKey, held: Document, new: Document) -> Document:
        if new == held:
            return held
        self.version += 1
        meta = {**new["metadata"], "resourceVersion": str(self.version)}
        if held and new.get("spec") != held.get("spec"):
            meta["generation"] = held["metadata"]["generation"] + 1
        stored = {**new, "metadata": meta}
        gone = bool(meta.get("deletionTimestamp")) and not meta.get("finalizers")
        if gone:
            self._objects.pop((resource, key), None)
        else:
            self._objects[resource, key] = stored
        self.events.append(Event(resource, gone, self.version, msgspec.json.encode(stored)))
        return stored


class LaggingCache(Generic[T]):
    """A real store that hears of the API's events when a test says so."""

    def __init__(
        self,
        api: FakeApiServer,
        resource: Resource[T],
        *,
        indexes: Indexes[T] | None = None,
        handler: Callable[[Change[T]], None] = lambda change: None,
    ) -> None:
        self._api = api
        self._resource = resource
        self._handler = handler
        self._heard = 0
        self.store: Store[T] = Store(indexes=indexes)
        self.relist()

    def behind(self) -> int:
        """How many events have not been heard of yet."""
        return sum(event.resource is self._resource for event in self._api.events[self._heard :])

    def catch_up(self, events: int | None = None) -> None:
        """Hear of the next so many events; of all, without a number."""
        left = self.behind() if events is None else min(events, self.behind())
        while left:
            event = self._api.events[self._heard]
            self._heard += 1
            if event.resource is self._resource:
                left -= 1
                obj = self._resource.decode(event.body)
                self._tell(self.store.remove(obj) if event.deleted else self.store.apply(obj))

    def bookmark(self) -> None:
        """Hear that nothing of this resource happened up to the next event, or up to now."""
        while self._heard < len(self._api.events) and self._api.events[self._heard].resource is not self._resource:
            self.store.advance(str(self._api.events[self._heard].version))
            self._heard += 1

    def relist(self) -> None:
        """Read everything anew."""
        self._heard = len(self._api.events)
        self._tell(self.store.replace(self._api.objects(self._resource), str(self._api.version)))

    def _tell(self, changes: tuple[Change[T], ...]) -> None:
        for change in changes:
            self._handler(change)


def merged(document: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = merged(result.get(field), value)
    return result


def stepped(document: Document, steps: list[dict[str, Any]]) -> Document:
    """A JSON patch (RFC 6902) of tests and removals. The server refuses one that does not fit, and changes nothing."""
    result = deepcopy(document)
    for step in steps:
        *parents, last = (place.replace("~1", "/").replace("~0", "~") for place in step["path"].split("/")[1:])
        try:
            holder: Any = result
            for place in parents:
                holder = holder[int(place) if isinstance(holder, list) else place]
            place = int(last) if isinstance(holder, list) else last
            fits = step["op"] == "remove" or holder[place] == step["value"]
            if step["op"] == "remove":
                del holder[place]
        except (KeyError, IndexError):
            fits = False
        if not fits:
            raise refusal(422, "Invalid", "the server rejected our request due to an error in our request")
    return result
