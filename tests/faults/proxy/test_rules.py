"""The rules of the fault proxy: which requests match, and for which of them a rule acts."""

from typing import Any

import pytest

from tests.faults.proxy.actions import CrashBefore, HoldWatch, LoseAnswer, Refuse
from tests.faults.proxy.requests import ApiRequest, parse_event
from tests.faults.proxy.rules import Match, Rule, Script

CORE, KUBEVIRT = "/api/v1", "/apis/kubevirt.io/v1"


def request(verb: str = "create", resource: str = "pods", **more: Any) -> ApiRequest:
    return ApiRequest(method="", target="", verb=verb, resource=resource, watch=verb == "watch", **more)


def acted(rule: Rule) -> list[int]:
    """The numbers of the requests that the rule acts on."""
    script = Script([rule])
    return [number for number in range(1, 11) if script.on_request(request())]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(Match(), LoseAnswer()), [1]),
        (Rule(Match(), LoseAnswer(), times=3), [1, 2, 3]),
        (Rule(Match(), LoseAnswer(), times=None, after=8), [9, 10]),
        (Rule(Match(), LoseAnswer(), times=None, every=4), [1, 5, 9]),
        (Rule(Match(), LoseAnswer(), times=2, after=1, every=3), [2, 5]),
        (Rule(Match("delete"), LoseAnswer()), []),
        (Rule(Match(), LoseAnswer(), times=0), []),
    ],
)
def test_a_rule_acts_on_the_chosen_occasions(rule: Rule, expected: list[int]) -> None:
    assert acted(rule) == expected


def test_the_first_rule_decides_and_the_others_count_the_request() -> None:
    script = Script([Rule(Match(), Refuse(503)), Rule(Match("write"), CrashBefore(), after=1)])
    taken = [script.on_request(request()) for _ in range(3)]
    assert [t and t.rule for t in taken] == [1, 2, None]


def test_a_rule_for_open_watches_acts_once_on_each_watch_and_after_so_many_events() -> None:
    script = Script([Rule(Match("watch", event="ADDED"), HoldWatch(), times=2, after=1)])
    watch, first, second = request("watch"), set[int](), set[int]()
    assert script.on_stream(watch, first) is None
    script.on_event(watch, parse_event(b'{"type":"MODIFIED","object":{"metadata":{"name":"b"}}}'))
    assert script.on_stream(watch, first) is None
    script.on_event(watch, parse_event(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}'))
    assert [script.on_stream(watch, seen) is not None for seen in (first, first, second)] == [True, False, True]
