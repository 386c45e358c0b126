"""The fault proxy against a tiny server: what it changes, what reaches the server, and what the client gets."""

import asyncio
import json

import pytest

from tests.faults.proxy.actions import (
    Action,
    CrashAfter,
    CrashBefore,
    Hang,
    LoseAnswer,
    Refuse,
    Reset,
)
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.tiny_server import connected, proxied

THINGS = "/apis/example.org/v1/namespaces/n/things"
ANY = Match()


async def test_a_refused_request_gets_a_status_object_and_never_reaches_the_server() -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        number = proxy.add(Rule(ANY, Refuse(429, retry_after="7"), times=2))
        for _ in range(2):
            client.ask(THINGS, "POST", b"{}")
            status, head, body = await client.answer()
            assert (status, json.loads(body)["reason"]) == (429, "TooManyRequests")
            assert b"Retry-After: 7" in head
        assert not server.requests
        client.ask(THINGS, "POST", b"{}")
        assert (await client.answer())[0] == 200
        assert [decision.code for decision in proxy.decisions(number)] == [429, 429]
        assert [decision.rule for decision in proxy.log] == [number, number, 0]


@pytest.mark.parametrize(
    ("action", "is_reset", "requests", "codes", "crashes"),
    [
        (LoseAnswer(), True, 1, (0, 200), []),
        (LoseAnswer(hang=True), False, 1, (0, 200), []),
        (Hang(), False, 0, (0, 0), []),
        (Reset(), True, 0, (0, 0), []),
        (CrashAfter(), False, 1, (0, 200), [1]),
        (CrashBefore(), False, 0, (0, 0), [0]),
    ],
)
async def test_a_fault_decides_what_the_client_sees_and_whether_the_request_reaches_the_server(
    action: Action, is_reset: bool, requests: int, codes: tuple[int, int], crashes: list[int]
) -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        crashed: list[int] = []
        proxy.on_crash = lambda: crashed.append(len(server.requests))
        number = proxy.add(Rule(Match("create"), action))
        client.ask(THINGS, "POST", b"{}")
        seen: object = None
        while seen != (requests, [codes], crashes):  # `proxied` limits the time
            await asyncio.sleep(0.01)
            answered = [(each.code, each.server_code) for each in proxy.decisions(number)]
            seen = len(server.requests), answered, crashed
        if is_reset:
            with pytest.raises(ConnectionResetError):
                await client.rest()
        else:
            assert await client.silent()
