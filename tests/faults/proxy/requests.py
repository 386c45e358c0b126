"""Requests to the API server, in the terms of the Kubernetes API."""

from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request in the terms of the Kubernetes API. `resource` is empty if the path names no resource."""

    verb: str
    resource: str
    resource_version: str

    @property
    def watch(self) -> bool:
        return self.verb == "watch"


def parse_request(method: str, target: str) -> ApiRequest:
    """Parse the method and the target of a request. `target` is the path with the query."""
    url = urlsplit(target)
    query = parse_qs(url.query)
    parts = [unquote(part) for part in url.path.strip("/").split("/")]
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in _NAMESPACE_SUBRESOURCES:
        parts = parts[2:]
    resource, name = (*parts, "", "")[:2]
    watch = query.get("watch", [""])[0] in ("1", "true") and method == "GET"
    verb = _VERBS.get(method, method.lower())
    verb = "watch" if watch else verb if name or not resource else _COLLECTION_VERBS.get(verb, verb)
    return ApiRequest(verb=verb, resource=resource, resource_version=query.get("resourceVersion", [""])[0])
