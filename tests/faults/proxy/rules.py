"""The rules of the fault proxy: what a rule matches, what it does, and the script that decides for each request.

    script = Script()
    script.add(Rule(Match("create", "virtualmachineinstances"), Refuse(503), times=3))
    script.decide(parse_request("POST", "/apis/kubevirt.io/v1/namespaces/n/virtualmachineinstances"), OnRequest)

Rules are frozen values. A script has no clock, no chance and no socket.
"""

from collections import Counter
from collections.abc import Collection
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from tests.faults.proxy.actions import Action

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request in the terms of the Kubernetes API. `resource` is empty if the path names no resource."""

    verb: str
    resource: str
    resource_version: str


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


class Match(Struct, frozen=True):
    """What a rule is for: a verb of Kubernetes and a resource. A field that is None matches everything."""

    verb: str | None = None
    resource: str | None = None

    def covers(self, request: ApiRequest) -> bool:
        return self.verb in (None, request.verb) and self.resource in (None, request.resource)


class Rule(Struct, frozen=True):
    """An action, and the requests on which the proxy takes the action, at most `times` times.

    If the action concerns events of a watch, the rule acts on each event of these watches that is no bookmark.
    """

    match: Match
    action: Action
    times: int | None = 1


class Script:
    """Rules, and how often each has acted. The first rule that may act decides."""

    def __init__(self) -> None:
        self.rules: dict[int, Rule] = {}
        self.acted = Counter[int]()
        self._last = 0

    def add(self, rule: Rule) -> int:
        """Add a rule behind the others, and return its number."""
        self._last += 1
        self.rules[self._last] = rule
        return self._last

    def remove(self, number: int) -> None:
        self.rules.pop(number, None)

    def decide(self, request: ApiRequest, kind: type[Action], *, but: Collection[int] = ()) -> tuple[int, Any] | None:
        """Return the number and the action of the first rule that acts, or None. `kind` is the class of the action. The
        rules with the numbers in `but` do not act.
        """
        for number, rule in self.rules.items():
            has_turn = rule.times is None or self.acted[number] < rule.times
            if isinstance(rule.action, kind) and number not in but and has_turn and rule.match.covers(request):
                self.acted[number] += 1
                return number, rule.action
        return None
