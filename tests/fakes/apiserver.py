"""The API server of unit tests, in memory. It checks and answers as the real API server does, and simulates faults.

`tests/fakes/test_against_the_real_server.py` sends the same requests to this server and to a kube-apiserver, and
compares the answers.

All resources share one version, which grows with every write. Each write creates an event. A test decides when a
`LaggingCache` receives the event. A request takes `latency_s`, and has its effect after half of that time.

Stored documents are never changed in place, so a test may keep a document.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from informers.errors import AnswerTooLarge, ApiError, TransportError
from informers.meta import KubeObject, ObjectKey
from informers.objects import LONGEST_PAGE, PatchType
from informers.resource import Resource
from tests.fakes import rules
from tests.fakes.answers import Answering, Call
from tests.fakes.patches import merge_patch
from tests.fakes.requests import AnyResource, Document, Fault, Garbled, Lost, Request, refusal

T = TypeVar("T", bound=KubeObject)

CREATED = datetime(2026, 8, 1, 12, tzinfo=UTC)


class Event(NamedTuple):
    """One event of a watch: the object's new state, or its last state if `deleted`."""

    resource: AnyResource
    deleted: bool
    version: int
    body: bytes


class FakeApiServer(Answering):
    """An API server in memory. The field `serves` has the resources that the method `request` finds by their path.

    `has_status` lists the resources with a status subresource. `default_status` has the default of the field `status`
    in the CRD of a resource. `finalizers` are added to each created object of a
    resource, as some admission plugins do. The function `now` gives the time for timestamps.
    """

    def __init__(
        self,
        *,
        latency_s: float = 0.01,
        serves: Iterable[AnyResource] = (),
        has_status: Iterable[AnyResource] = (),
        default_status: Mapping[AnyResource, Document] | None = None,
        finalizers: Mapping[AnyResource, list[str]] | None = None,
        now: Callable[[], datetime] = lambda: CREATED,
    ) -> None:
        self.version = 100
        self.events: list[Event] = []
        self.requests: list[Request] = []
        self.quota: dict[AnyResource, int] = {}
        self.terminating: set[str] = set()
        """The namespaces that are being deleted."""

        self.fault_for: Callable[[Request], Fault | None] = lambda request: None
        """A function that is called for each request. It returns the fault of the request, or None."""

        self.on_write: Callable[[Request, Document | None], None] = lambda request, before: None
        """A function that is called at each write, with the object before the write."""

        self.on_update: Callable[[Request], Document] = rules.not_served
        """A function that carries out each PUT on a subresource, and returns the answer."""

        self.check_patch: Callable[[AnyResource, Document, Document], None] = lambda resource, before, after: None
        """A function that is called for each patch of a client, with the object before and after. It raises the error
        of an admission plugin.
        """

        self.is_down = False
        """While this is true, no request has an effect. This includes requests that began earlier."""

        self.latency_s = latency_s
        self.most_at_once = 0
        self._at_once = 0
        self._now = now
        self._served = {(each.group_path, each.plural): each for each in serves}
        self._has_status = frozenset(has_status)
        self._default_status = dict(default_status or {})
        self._unstored_defaults: set[tuple[AnyResource, ObjectKey]] = set()
        """The objects whose default status is only shown. Their next write stores it, even if it changes nothing."""

        self.finalizers = dict(finalizers or {})
        self._objects: dict[AnyResource, dict[ObjectKey, Document]] = {}

    # Requests of clients

    async def answer(self, call: Call) -> bytes:
        resource, key, subresource = self._route(call.path)
        match call.method:
            case "GET" if key.name:
                return await self.get(resource, key)
            case "GET":
                return await self._serve(Request("list", resource, key), lambda: self._list(resource, key.namespace))
            case "POST":
                return await self.create(resource, key.namespace, call.body)
            case "PATCH":
                return await self.patch(
                    resource, key, call.body, content_type=call.content_type, subresource=subresource
                )
        raise AssertionError(f"not served by the fake: {call.method}")

    async def get(self, resource: AnyResource, key: ObjectKey) -> bytes:
        return await self._serve(Request("get", resource, key), lambda: self.document(resource, key))

    async def list_metadata(
        self, resource: AnyResource, namespace: str, *, limit: int, continue_: str = "", selector: str = ""
    ) -> bytes:
        """The fake ignores the selector: its pages have all objects."""
        answer = await self._serve(
            Request("list", resource, ObjectKey(namespace, "")),
            lambda: self._list_metadata(resource, namespace, limit, int(continue_ or 0)),
        )
        if len(answer) > LONGEST_PAGE:
            raise AnswerTooLarge("too large")
        return answer

    async def create(self, resource: AnyResource, namespace: str, body: bytes, *, dry_run: bool = False) -> bytes:
        document = msgspec.json.decode(body)
        key = ObjectKey(namespace, document["metadata"]["name"])
        request = Request("create", resource, key, dry_run=dry_run)
        return await self._serve(request, lambda: self._create(resource, key, document, dry_run=dry_run))

    async def patch(
        self, resource: AnyResource, key: ObjectKey, body: bytes, *, content_type: str, subresource: str = ""
    ) -> bytes:
        assert content_type in list(PatchType)
        patch = msgspec.json.decode(body)
        assert isinstance(patch, list) == (content_type == PatchType.JSON), "only a JSON patch is a list"
        request = Request("patch", resource, key, subresource)
        return await self._serve(request, lambda: self._patch(resource, key, patch, subresource))

    async def update(self, resource: AnyResource, key: ObjectKey, body: bytes, *, subresource: str) -> bytes:
        request = Request("update", resource, key, subresource)
        return await self._serve(request, lambda: self.on_update(request))

    async def delete(
        self, resource: AnyResource, key: ObjectKey, *, uid: str = "", propagation: str = "", version: str = ""
    ) -> bytes:
        return await self._serve(
            Request("delete", resource, key), lambda: self._delete(resource, key, uid, version, propagation)
        )

    # Reads by tests

    def objects(self, resource: Resource[T]) -> list[T]:
        """The objects of a resource, in the order of their creation."""
        return [resource.decode(msgspec.json.encode(held)) for held in self._of(resource).values()]

    def find(self, resource: Resource[T], key: ObjectKey) -> T | None:
        held = self._of(resource).get(key)
        return None if held is None else resource.decode(msgspec.json.encode(held))

    def current(self, resource: AnyResource, key: ObjectKey) -> Document | None:
        return self._of(resource).get(key)

    def document(self, resource: AnyResource, key: ObjectKey) -> Document:
        """Raises NotFound."""
        try:
            return self._of(resource)[key]
        except KeyError:
            raise rules.not_found(resource, key) from None

    def documents(self, resource: AnyResource, namespace: str = "default") -> dict[str, Document]:
        """The objects of a resource in a namespace, by name."""
        return {key.name: held for key, held in self._of(resource).items() if key.namespace == namespace}

    def every(self) -> Iterable[tuple[AnyResource, ObjectKey, Document]]:
        return [(resource, key, held) for resource, group in self._objects.items() for key, held in group.items()]

    # Changes by other clients

    def put(self, resource: AnyResource, document: Document) -> Document:
        """Create an object without any check. Keep its UID, timestamps and status, and remove null fields."""
        document = rules.without_nulls(document)
        meta = document["metadata"]
        return self._add(resource, ObjectKey(meta.get("namespace", "default"), meta["name"]), document)

    def replace(self, resource: AnyResource, document: Document) -> Document:
        key = ObjectKey(document["metadata"]["namespace"], document["metadata"]["name"])
        return self._store(resource, key, self.document(resource, key), document)

    def change(self, resource: AnyResource, key: ObjectKey, patch: Document) -> Document:
        """Apply a merge patch to an object, including its metadata and status."""
        held = self.document(resource, key)
        return self._store(resource, key, held, merge_patch(held, patch))

    def remove(self, resource: AnyResource, key: ObjectKey, *, propagation: str = "") -> None:
        self._delete(resource, key, "", "", propagation)

    def finalize(self, resource: AnyResource, key: ObjectKey) -> None:
        """Remove all finalizers. A terminating object is removed."""
        self.change(resource, key, {"metadata": {"finalizers": None}})

    # Processing of requests

    async def _serve(self, request: Request, act: Callable[[], Document]) -> bytes:
        self.requests.append(request)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        fault = self.fault_for(request)
        try:
            await asyncio.sleep(self.latency_s / 2)
            answer = self._answer(request, fault, act)
            await asyncio.sleep(self.latency_s / 2)
        finally:
            self._at_once -= 1
        return answer

    def _answer(self, request: Request, fault: Fault | None, act: Callable[[], Document]) -> bytes:
        if isinstance(fault, Exception):
            raise fault
        if fault is not Lost.BEFORE and not self.is_down:
            with suppress(ApiError) if fault else nullcontext():
                before = self._of(request.resource).get(request.key)
                answer = act()
                if request.is_write:
                    self.on_write(request, before)
                if not fault:
                    return msgspec.json.encode(answer)
        if isinstance(fault, Garbled):
            return fault.body
        raise TransportError("the connection broke: Connection reset by peer", sent=True)

    def _route(self, path: str) -> tuple[AnyResource, ObjectKey, str]:
        prefix = 3 if path.startswith("/api/") else 4
        parts = path.split("/")
        group_path, rest = "/".join(parts[:prefix]), parts[prefix:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        if (group_path, plural) not in self._served:
            raise refusal(404, "NotFound", "the server could not find the requested resource")
        return self._served[group_path, plural], ObjectKey(unquote(namespace), unquote(name)), subresource

    def _of(self, resource: AnyResource) -> dict[ObjectKey, Document]:
        return self._objects.get(resource, {})

    def _list(self, resource: AnyResource, namespace: str) -> Document:
        items = [held for key, held in sorted(self._of(resource).items()) if namespace in ("", key.namespace)]
        head = {"apiVersion": resource.api_version, "kind": f"{resource.kind}List"}
        return {**head, "metadata": {"resourceVersion": str(self.version)}, "items": items}

    def _list_metadata(self, resource: AnyResource, namespace: str, limit: int, start: int) -> Document:
        whole = self._list(resource, namespace)
        items, end = whole["items"], start + limit
        more = {"continue": str(end), "remainingItemCount": len(items) - end} if end < len(items) else {}
        page = [{"metadata": held["metadata"]} for held in items[start:end]]
        return {"kind": "PartialObjectMetadataList", "metadata": whole["metadata"] | more, "items": page}

    def _create(self, resource: AnyResource, key: ObjectKey, document: Document, *, dry_run: bool = False) -> Document:
        # Admission comes before storage. With a full quota, the answer is 403 even if the name is taken.
        if key.namespace in self.terminating:
            why = f"unable to create new content in namespace {key.namespace} because it is being terminated"
            raise refusal(403, "Forbidden", f'{resource.name} "{key.name}" is forbidden: {why}', "NamespaceTerminating")
        used = sum(other.namespace == key.namespace for other in self._of(resource))
        limit = self.quota.get(resource, used + 1)
        if used >= limit:
            count = f"count/{resource.name}"
            numbers = f"requested: {count}=1, used: {count}={used}, limited: {count}={limit}"
            why = f"exceeded quota: few, {numbers}"
            raise refusal(403, "Forbidden", f'{resource.name} "{key.name}" is forbidden: {why}')
        if key in self._of(resource):
            raise rules.already_exists(resource, self._of(resource)[key])
        if dry_run:
            return document
        meta = document["metadata"]
        given = {field: value for field, value in meta.items() if field not in rules.SET_BY_SERVER}
        if resource in self._has_status:
            document = {field: value for field, value in document.items() if field != "status"}
        return self._add(resource, key, {**document, "metadata": given})

    def _add(self, resource: AnyResource, key: ObjectKey, document: Document) -> Document:
        made = msgspec.json.decode(msgspec.json.encode(document))
        defaults = {"uid": f"uid-{self.version + 1}", "creationTimestamp": rules.wire(self._now()), "generation": 1}
        made["metadata"] = {**defaults, **made["metadata"], "namespace": key.namespace}
        if resource in self.finalizers:
            made["metadata"]["finalizers"] = [*rules.finalizers_of(made), *self.finalizers[resource]]
        return self._store(resource, key, None, made)

    def _patch(self, resource: AnyResource, key: ObjectKey, patch: Any, subresource: str) -> Document:
        held = self.document(resource, key)
        has_status = resource in self._has_status
        new = rules.patched(resource, held, patch, subresource=subresource, has_status=has_status)
        self.check_patch(resource, held, new)
        return self._store(resource, key, held, new)

    def _delete(self, resource: AnyResource, key: ObjectKey, uid: str, version: str, propagation: str) -> Document:
        held = self.document(resource, key)
        rules.check_preconditions(resource, held["metadata"], uid=uid, version=version)
        meta = {**held["metadata"], "finalizers": rules.garbage_finalizers(held["metadata"], propagation)}
        if not meta.get("deletionTimestamp"):
            meta |= {"deletionTimestamp": rules.wire(self._now()), "deletionGracePeriodSeconds": 0}
            meta["generation"] = meta.get("generation", 0) + 1
        left = self._store(resource, key, held, {**held, "metadata": meta})
        if key in self._of(resource):
            return left
        details = {"name": key.name, "kind": resource.plural, "group": resource.group, "uid": meta["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _store(self, resource: AnyResource, key: ObjectKey, held: Document | None, new: Document) -> Document:
        new = rules.stored(held, new, has_status=resource in self._has_status)
        default = self._default_status.get(resource)
        if default is not None:
            new = {"status": default, **new}
        if new == held and (resource, key) not in self._unstored_defaults:
            return new
        self._unstored_defaults.discard((resource, key))
        if held is None and default is not None:
            self._unstored_defaults.add((resource, key))
        self.version += 1
        shown = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        gone = "deletionTimestamp" in new["metadata"] and "finalizers" not in new["metadata"]
        self.events.append(Event(resource, gone, self.version, msgspec.json.encode(shown)))
        if gone:
            # The event has the version of the removal. The answer has the last stored version.
            self._objects[resource].pop(key, None)
            return new
        self._objects.setdefault(resource, {})[key] = shown
        return shown
