"""Routes the requests of the replay server.

The server serves the kinds that vmherd reads and writes, their `status`, leases, permission reviews and discovery. It
accepts Events and forgets them. Requests below `/replay/` control the server itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.replay.collection import Collection, encode
from benchmarks.replay.http import Answer, Request, Stream
from benchmarks.replay.state import Refused, State
from benchmarks.replay.statistics import Statistics
from benchmarks.replay.watching import Watch, list_page
from controller.kinds import KINDS, accesses

VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
REVIEWS = ("selfsubjectaccessreviews", "selfsubjectreviews")
VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}

Control = Callable[[dict[str, str]], Any]


class Target:
    """The object or the collection in a path: group, version, namespace, plural, name and subresource."""

    def __init__(self, path: str) -> None:
        first, *parts = path.strip("/").split("/")
        self.group, parts = ("", parts) if first == "api" else (parts[0], parts[1:])
        self.version, *parts = parts or [""]
        self.namespace = ""
        if len(parts) > 2 and parts[0] == "namespaces":
            self.namespace, parts = parts[1], parts[2:]
        self.plural, self.name, self.subresource = (*parts, "", "", "")[:3]


class Server:
    """Answers the requests of one client, from `state`. `controls` are the functions below `/replay/`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.seen = Statistics()
        self.controls: dict[str, Control] = {}
        for group, version, plural, kind in served():
            state.add(Collection(group, version, plural, kind))

    def handle(self, request: Request) -> Answer | Stream:
        try:
            return self._answer(request)
        except Refused as error:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": error.code}
            return Answer(error.code, encode(status | {"reason": error.reason, "message": error.message}))

    def _answer(self, request: Request) -> Answer | Stream:
        if request.path.startswith("/replay/"):
            return Answer(200, encode(self.controls[request.path.removeprefix("/replay/")](request.params)))
        if request.path == "/version":
            return Answer(200, encode(VERSION))
        target = Target(request.path)
        verb = VERBS[request.method]
        if verb == "get" and target.plural and not target.name:
            verb = "watch" if request.params.get("watch") else "list"
        if target.plural:
            self.seen.note(verb, target.plural, target.subresource)
        if not target.plural:
            return self._discovery(target)
        if target.plural in REVIEWS:
            return Answer(201, encode({"status": {"allowed": True, "userInfo": {"username": "bench"}}}))
        if target.plural == "events":
            return Answer(201, request.body)
        return self._objects(verb, target, request)

    def _discovery(self, target: Target) -> Answer:
        found = [
            {"name": each.plural, "kind": each.kind, "namespaced": True, "verbs": list(VERBS.values())}
            for each in self.state.collections.values()
            if (each.group, each.api_version) == (target.group, target.version)
        ]
        if not found:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return Answer(200, encode({"kind": "APIResourceList", "groupVersion": target.group, "resources": found}))

    def _objects(self, verb: str, target: Target, request: Request) -> Answer | Stream:
        collection = self.state.collections.get((target.group, target.plural))
        if collection is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        key = (target.namespace, target.name)
        match verb:
            case "list":
                return list_page(self.state, collection, target.namespace, request)
            case "watch":
                return Watch(self.state, collection, target.namespace, request)
            case "get":
                return Answer(200, self.state.item(collection, key).render())
            case "create":
                self.seen.note_create(_owner_of(request.body), request.at)
                return Answer(201, self.state.create(collection, target.namespace, request.body))
            case "patch":
                is_json = request.headers.get("content-type") == "application/json-patch+json"
                body = self.state.patch(
                    collection, key, request.body, is_json_patch=is_json, subresource=target.subresource
                )
                return Answer(200, body)
            case "update":
                return Answer(200, self.state.replace(collection, key, request.body))
            case _:
                return Answer(200, self.state.delete(collection, key, request.body))


class _Owner(msgspec.Struct, rename="camel"):
    uid: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    owner_references: list[_Owner] | None = None


class _Created(msgspec.Struct):
    metadata: _Meta


_decode_created = msgspec.json.Decoder(_Created).decode


def _owner_of(body: bytes) -> str:
    owners = _decode_created(body).metadata.owner_references
    return owners[0].uid if owners else ""


def served() -> list[tuple[str, str, str, str]]:
    """Return group, version, plural and kind of all resources that the server serves."""
    resources = [each.resource for each in accesses()] + [kind.resource() for kind in KINDS]
    found = {(each.group, each.version, each.plural, each.kind) for each in resources}
    return sorted(found | {("coordination.k8s.io", "v1", "leases", "Lease")})
