"""The rules of the fault proxy: what a rule matches, what it does, and the script that decides for each request.

    script = Script()
    script.add(Rule(Match("create", "virtualmachineinstances"), Refuse(503), times=3))
    script.on_request(parse_request("POST", "/apis/kubevirt.io/v1/namespaces/n/virtualmachineinstances"))

Rules are frozen values. A script has no clock, no chance and no socket.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from tests.faults.proxy.actions import ON_EVENT, ON_STREAM, Action
from tests.faults.proxy.requests import WRITES, ApiRequest, WatchEvent


class Match(Struct, frozen=True):
    """What a rule is for. Each field that is None matches everything.

    `verb` is a Kubernetes verb, or "write" for all verbs that write. For a watch, `event` selects events by
    their type. Without `event`, bookmarks do not match.
    """

    verb: str | None = None
    resource: str | None = None
    subresource: str | None = None
    watch: bool | None = None
    event: str | None = None

    def covers(self, request: ApiRequest) -> bool:
        """Return True if the rule is for this request."""
        return (
            (self.verb is None or request.verb in (WRITES if self.verb == "write" else (self.verb,)))
            and self.resource in (None, request.resource)
            and self.subresource in (None, request.subresource)
            and self.watch in (None, request.watch)
        )

    def covers_event(self, event: WatchEvent) -> bool:
        """Return True if the event has the type of the rule.

        Call this only if the method `covers` accepts the request of the event's watch.
        """
        return event.type != "BOOKMARK" if self.event is None else event.type == self.event


class Rule(Struct, frozen=True):
    """An action, and the requests or events on which the proxy takes the action.

    The rule counts the requests that match. If the action concerns events of a watch, the rule counts the events that
    match. The rule ignores the first ones; the field `after` is their number. After that, it acts on each request or
    event, but at most `times` times.

    Some actions act on a whole watch, not on an event. As soon as the number of matching events has reached the field
    `after`, the rule acts once on each watch.
    """

    match: Match
    action: Action
    times: int | None = 1
    after: int = 0


class Taken(Struct, frozen=True):
    """The number of a rule that acts, and its action."""

    rule: int
    action: Action


class Script:
    """Rules with their counters. The first rule that acts decides; each rule counts all its occasions."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules: dict[int, Rule] = {}
        self._seen: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self._last = 0
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule) -> int:
        """Add a rule behind the others, and return its number."""
        self._last += 1
        self.rules[self._last] = rule
        self._seen[self._last] = self._used[self._last] = 0
        return self._last

    def remove(self, number: int) -> None:
        self.rules.pop(number, None)

    def on_request(self, request: ApiRequest) -> Taken | None:
        """Decide what the proxy does with a request. Actions on the events of a watch are not decided here."""
        of_watch = ON_STREAM + ON_EVENT
        return self._first(lambda rule: not isinstance(rule.action, of_watch) and rule.match.covers(request))

    def on_stream(self, request: ApiRequest, decided: set[int]) -> Taken | None:
        """Decide what the proxy does with an open watch, without an event. Each rule decides once for a watch.
        `decided` contains the rules that have decided, and this method adds to it.
        """
        for number, rule in self.rules.items():
            if (
                number in decided
                or not isinstance(rule.action, ON_STREAM)
                or self._seen[number] < rule.after
                or not rule.match.covers(request)
            ):
                continue
            decided.add(number)
            if self._may_act(number, rule):
                return self._take(number, rule)
        return None

    def on_event(self, request: ApiRequest, event: WatchEvent) -> Taken | None:
        """Decide what the proxy does with an event of a watch."""
        for number, rule in self.rules.items():
            if isinstance(rule.action, ON_STREAM) and rule.match.covers(request) and rule.match.covers_event(event):
                self._seen[number] += 1
        return self._first(
            lambda rule: (
                isinstance(rule.action, ON_EVENT) and rule.match.covers(request) and rule.match.covers_event(event)
            )
        )

    def watches_events(self, request: ApiRequest) -> bool:
        """Return True if a rule may act on this watch or on its events."""
        return any(isinstance(r.action, ON_STREAM + ON_EVENT) and r.match.covers(request) for r in self.rules.values())

    def _first(self, occasion: Callable[[Rule], bool]) -> Taken | None:
        taken = None
        for number, rule in self.rules.items():
            if occasion(rule):
                self._seen[number] += 1
                if taken is None and self._has_turn(number, rule, self._seen[number]):
                    taken = self._take(number, rule)
        return taken

    def _has_turn(self, number: int, rule: Rule, occasion: int) -> bool:
        return occasion > rule.after and self._may_act(number, rule)

    def _may_act(self, number: int, rule: Rule) -> bool:
        return rule.times is None or self._used[number] < rule.times

    def _take(self, number: int, rule: Rule) -> Taken:
        self._used[number] += 1
        return Taken(number, rule.action)
