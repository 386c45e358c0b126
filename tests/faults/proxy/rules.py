"""The rules of the fault proxy: what a rule matches, what it does, and the script that decides for each request.

    script = Script()
    script.add(Rule(Match("create", "virtualmachineinstances"), Refuse(503), times=3))
    script.on_request(parse_request("POST", "/apis/kubevirt.io/v1/namespaces/n/virtualmachineinstances"))

Rules are frozen values. A script has no clock, no chance and no socket.
"""

from collections import Counter
from collections.abc import Collection

from msgspec import Struct

from tests.faults.proxy.actions import ON_EVENT, ON_STREAM, Action
from tests.faults.proxy.requests import ApiRequest


class Match(Struct, frozen=True):
    """What a rule is for: a verb of Kubernetes and a resource. A field that is None matches everything."""

    verb: str | None = None
    resource: str | None = None

    def covers(self, request: ApiRequest) -> bool:
        """Return True if the rule is for this request."""
        return self.verb in (None, request.verb) and self.resource in (None, request.resource)


class Rule(Struct, frozen=True):
    """An action, and the requests on which the proxy takes the action, at most `times` times.

    If the action concerns events of a watch, the rule acts on each event of these watches that is no bookmark.
    """

    match: Match
    action: Action
    times: int | None = 1


class Taken(Struct, frozen=True):
    """The number of a rule that acts, and its action."""

    rule: int
    action: Action


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

    def on_request(self, request: ApiRequest) -> Taken | None:
        """Decide what the proxy does with a request."""
        others = {number for number, each in self.rules.items() if isinstance(each.action, ON_STREAM + ON_EVENT)}
        return self._first(request, but=others)

    def on_stream(self, request: ApiRequest, decided: set[int]) -> Taken | None:
        """Decide what the proxy does with an open watch, without an event. Each rule decides once for a watch.
        `decided` contains the rules that have decided, and this method adds to it.
        """
        others = {number for number, each in self.rules.items() if not isinstance(each.action, ON_STREAM)}
        taken = self._first(request, but=others | decided)
        decided |= {taken.rule} if taken else set()
        return taken

    def on_event(self, request: ApiRequest) -> Taken | None:
        """Decide what the proxy does with an event of a watch."""
        others = {number for number, each in self.rules.items() if not isinstance(each.action, ON_EVENT)}
        return self._first(request, but=others)

    def _first(self, request: ApiRequest, *, but: Collection[int]) -> Taken | None:
        for number, rule in self.rules.items():
            has_turn = rule.times is None or self.acted[number] < rule.times
            if number not in but and has_turn and rule.match.covers(request):
                self.acted[number] += 1
                return Taken(number, rule.action)
        return None
