"""A client of the API server for JSON objects. The caller gives the URL path of each object."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from conformance.case import Document, Unmet
from informers.errors import NotFound
from informers.http.client import ApiClient
from informers.objects import PatchType

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
WATCH_IDLE_S = 300.0


class Api:
    """Reads and writes objects. Each method raises ApiError if its request fails."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, path: str, **params: str) -> Document:
        return _document(await self._client.request("GET", path, params=params or None))

    async def find(self, path: str) -> Document | None:
        try:
            return await self.get(path)
        except NotFound:
            return None

    async def items(self, path: str, selector: str = "") -> list[Document]:
        answer = await self.get(path, **({"labelSelector": selector} if selector else {}))
        items: list[Document] = answer.get("items") or []
        return items

    async def table(self, path: str) -> Document:
        return _document(await self._client.request("GET", path, accept=TABLE))

    async def create(self, path: str, document: Document, **params: str) -> Document:
        return _document(await self._client.request("POST", path, params=params or None, body=_encode(document)))

    async def merge(self, path: str, change: Document) -> Document:
        return _document(await self._client.request("PATCH", path, body=_encode(change), content_type=PatchType.MERGE))

    async def steps(self, path: str, *steps: Document) -> Document:
        return _document(await self._client.request("PATCH", path, body=_encode(steps), content_type=PatchType.JSON))

    async def delete(self, path: str, propagation: str = "Background") -> None:
        """Delete an object. A missing object is no error."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        try:
            await self._client.request("DELETE", path, body=_encode(options))
        except NotFound:
            return

    @asynccontextmanager
    async def watch(self, path: str, version: str) -> AsyncIterator[AsyncIterator[Document]]:
        params = {"watch": "1", "resourceVersion": version}
        async with self._client.stream(path, params=params, idle_timeout_s=WATCH_IDLE_S) as chunks:
            yield _events(chunks)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Document]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield _document(line)


def _encode(document: object) -> bytes:
    return msgspec.json.encode(document)


def _document(body: bytes) -> Document:
    decoded: Document = msgspec.json.decode(body)
    return decoded


def uids_by_name(documents: Mapping[str, Document]) -> dict[str, str]:
    return {name: document["metadata"]["uid"] for name, document in documents.items()}


def uids_of(documents: Mapping[str, Document]) -> set[str]:
    return {*uids_by_name(documents).values()}


def labels_of(document: Mapping[str, Any]) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def owners_of(document: Mapping[str, Any]) -> list[Document]:
    return document["metadata"].get("ownerReferences") or []


def finalizers_of(document: Mapping[str, Any]) -> list[str]:
    return document["metadata"].get("finalizers") or []


def controller_of(document: Mapping[str, Any]) -> Document | None:
    return next((owner for owner in owners_of(document) if owner.get("controller")), None)


def is_terminating(document: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in document["metadata"]


def condition_of(document: Mapping[str, Any], type_: str) -> Document | None:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type_), None)


def is_ready(document: Mapping[str, Any]) -> bool:
    ready = condition_of(document, "Ready")
    return ready is not None and ready.get("status") == "True"


def managers_of(document: Mapping[str, Any], subresource: str | None = None) -> set[str]:
    """Return the programs that wrote the object. A process of vmherd adds its identity after a slash."""
    fields = document["metadata"].get("managedFields") or ()
    written = (each for each in fields if subresource is None or each.get("subresource", "") == subresource)
    return {each["manager"].partition("/")[0] for each in written}


SHOWN = 300


def require(expected: str, met: object, seen: object) -> None:
    """Raise Unmet if `met` is false."""
    if not met:
        raise Unmet(expected, describe(seen))


def describe(seen: object) -> str:
    """Return a short text of one line for a value. Objects of the API server are reduced to their names and states."""
    text = seen if isinstance(seen, str) else msgspec.json.encode(_reduced(seen)).decode()
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def _reduced(seen: Any) -> Any:
    match seen:
        case {"metadata": {"name": str(name)}}:
            status = seen.get("status") or {}
            state = status.get("phase") or status.get("printableStatus") or ""
            words = (state, "ready" if is_ready(seen) else "", "terminating" if is_terminating(seen) else "")
            return " ".join(word for word in (name, *words) if word)
        case dict() if seen and all(isinstance(value, dict) and "metadata" in value for value in seen.values()):
            return [_reduced(value) for value in seen.values()]
        case dict():
            return {str(key): _reduced(value) for key, value in seen.items()}
        case set() | frozenset():
            return sorted(map(str, seen))
        case list() | tuple():
            return [_reduced(value) for value in seen]
        case _:
            return seen
