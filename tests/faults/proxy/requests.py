"""Requests to the API server and events of a watch, in the terms of the Kubernetes API."""

from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
from msgspec import Struct

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request in the terms of the Kubernetes API. `resource` is empty if the path names no resource."""

    method: str
    target: str
    verb: str
    resource: str = ""
    subresource: str = ""
    name: str = ""
    watch: bool = False
    resource_version: str = ""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


def parse_request(method: str, target: str) -> ApiRequest:
    """Parse the method and the target of a request. `target` is the path with the query."""
    url = urlsplit(target)
    query = parse_qs(url.query)
    parts = [unquote(part) for part in url.path.strip("/").split("/")]
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in _NAMESPACE_SUBRESOURCES:
        parts = parts[2:]
    resource, name, subresource = (*parts, "", "", "")[:3]
    watch = query.get("watch", [""])[0] in ("1", "true") and method == "GET"
    verb = _VERBS.get(method, method.lower())
    verb = "watch" if watch else verb if name or not resource else _COLLECTION_VERBS.get(verb, verb)
    return ApiRequest(
        method=method,
        target=target,
        verb=verb,
        resource=resource,
        subresource="/".join((subresource, *parts[3:])) if parts[3:] else subresource,
        name=name,
        watch=watch,
        resource_version=query.get("resourceVersion", [""])[0],
    )


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class WatchEvent(Struct, frozen=True):
    """The type and the metadata of one event of a watch."""

    type: str = ""
    object: _Object = _Object()

    @property
    def metadata(self) -> _Metadata:
        return self.object.metadata


_decode_event = msgspec.json.Decoder(WatchEvent).decode


def parse_event(line: bytes) -> WatchEvent:
    """Parse a line of a watch. The result is empty if the line is not an event."""
    try:
        return _decode_event(line)
    except msgspec.MsgspecError:
        return WatchEvent()
