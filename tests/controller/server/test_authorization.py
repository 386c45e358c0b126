from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.server.authorization import (
    ALLOWED_AT_MOST_S,
    ALLOWED_FOR_S,
    ASKING_AT_ONCE,
    BAD_TOKEN,
    DENIED_FOR_S,
    NO_ANSWER,
    NO_TOKEN,
    REMEMBERED,
    Denial,
    Reviewer,
)
from informers.errors import Forbidden, TransportError

PROMETHEUS = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "17",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}


class Api:
    """An API server that knows some tokens, and lets some users get /metrics."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {"good": PROMETHEUS, "weak": {"username": "bob"}}
        self.allowed = {PROMETHEUS["username"]}
        self.asked: Counter[str] = Counter()
        self.questions: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.under_way = self.most_under_way = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        assert (method, params, content_type) == ("POST", None, "application/json")
        assert timeout_s is not None
        assert timeout_s <= 10
        review = json.loads(body or b"")
        self.asked[review["kind"]] += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.hold is not None:
                await self.hold.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.under_way -= 1
        if review["kind"] == "TokenReview":
            assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
            user = self.users.get(review["spec"]["token"])
            return json.dumps({"status": {"authenticated": user is not None, "user": user}}).encode()
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        self.questions.append(review["spec"])
        return json.dumps({"status": {"allowed": review["spec"]["user"] in self.allowed}}).encode()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class World:
    def __init__(self) -> None:
        self.api = Api()
        self.clock = Clock()
        self.reviewer = Reviewer(self.api, clock=self.clock)

    async def check(self, token: str) -> Denial | None:
        return await self.reviewer.check(f"Bearer {token}")


async def test_who_may_get_metrics_is_let_in():
    assert await World().check("good") is None


async def test_the_api_server_is_asked_about_just_that_user_path_and_verb():
    world = World()
    await world.check("good")
    [question] = world.api.questions
    assert question.pop("nonResourceAttributes") == {"path": "/metrics", "verb": "get"}
    assert question == {"user": PROMETHEUS["username"], **{k: v for k, v in PROMETHEUS.items() if k != "username"}}


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic Z29vZDo=", "good"])
async def test_without_a_bearer_token_nobody_is_asked(header: str):
    world = World()
    assert await world.reviewer.check(header) == NO_TOKEN
    assert (NO_TOKEN.status, world.api.asked) == (401, Counter())


@pytest.mark.parametrize("header", ["bearer good", "BEARER good", "Bearer   good  "])
async def test_the_scheme_may_be_spelled_in_any_case(header: str):
    assert await World().reviewer.check(header) is None


async def test_a_token_that_nobody_knows_is_a_401():
    denial = await World().check("made-up")
    assert denial == BAD_TOKEN
    assert denial.status == 401


async def test_a_user_who_may_not_is_a_403_that_names_him_and_what_would_help():
    assert await World().check("weak") == Denial(
        403, "bob may not get /metrics; a ClusterRole has to allow that nonResourceURL"
    )


@pytest.mark.parametrize(
    ("token", "reviews", "valid_s"),
    [
        ("good", {"TokenReview": 1, "SubjectAccessReview": 1}, ALLOWED_FOR_S),
        ("weak", {"TokenReview": 1, "SubjectAccessReview": 1}, DENIED_FOR_S),
        ("made-up", {"TokenReview": 1}, DENIED_FOR_S),
    ],
)
async def test_an_answer_is_remembered_for_its_time_and_no_longer(token: str, reviews: dict[str, int], valid_s: float):
    world = World()
    first = await world.check(token)
    world.clock.now += valid_s - 1
    assert await world.check(token) == first
    assert world.api.asked == reviews
    world.clock.now += 1
    assert await world.check(token) == first
    assert world.api.asked == {kind: 2 * times for kind, times in reviews.items()}


async def test_what_is_remembered_of_one_token_says_nothing_of_another():
    world = World()
    assert await world.check("good") is None
    assert await world.check("made-up") == BAD_TOKEN
    assert await world.check("good") is None


async def test_a_right_that_is_taken_away_ends():
    world = World()
    await world.check("good")
    world.api.allowed.clear()
    world.clock.now += ALLOWED_FOR_S
    denial = await world.check("good")
    assert denial is not None
    assert denial.status == 403
    world.api.error = TransportError("down", sent=False)
    world.clock.now += DENIED_FOR_S
    assert await world.check("good") == NO_ANSWER, "and what was allowed before is forgotten"


async def test_a_right_that_is_given_counts_soon():
    world = World()
    await world.check("weak")
    world.api.allowed.add("bob")
    world.clock.now += DENIED_FOR_S
    assert await world.check("weak") is None


async def test_while_the_api_server_is_away_what_it_allowed_holds_for_a_while():
    world = World()
    await world.check("good")
    world.api.error = TransportError("connection refused", sent=False)
    world.clock.now += ALLOWED_AT_MOST_S - 1
    assert await world.check("good") is None
    world.clock.now += 1
    assert await world.check("good") == NO_ANSWER
    assert NO_ANSWER.status == 503


async def test_while_the_api_server_is_away_nobody_new_is_let_in():
    world = World()
    world.api.error = TransportError("connection refused", sent=False)
    assert await world.check("good") == NO_ANSWER
    world.api.error = None
    assert await world.check("good") is None, "and the failure is not remembered"


async def test_that_the_program_may_not_ask_is_told_in_the_log_alone():
    world = World()
    world.api.error = Forbidden('User "vmherd" cannot create tokenreviews', code=403)
    with capture_logs() as lines:
        assert await world.check("good") == NO_ANSWER
    assert [line["event"] for line in lines] == ["cannot check who reads the metrics"]
    assert "tokenreviews" in lines[0]["why"]


async def test_the_log_tells_of_a_refusal_once_in_a_while_and_never_the_token():
    world = World()
    with capture_logs() as lines:
        for number in range(50):
            await world.check(f"s3cret-{number}")
        world.clock.now += 10
        await world.check("weak")
    assert [line["event"] for line in lines] == ["refused to show the metrics"] * 2
    assert lines[1]["why"].startswith("bob may not")
    assert "s3cret" not in str(lines)


async def test_no_token_is_kept():
    world = World()
    await world.check("good")
    await world.check("s3cret")
    assert "good" not in str(vars(world.reviewer))
    assert "s3cret" not in str(vars(world.reviewer))


async def test_made_up_tokens_do_not_push_out_a_real_one():
    world = World()
    await world.check("good")
    for number in range(REMEMBERED + 10):
        await world.check(f"made-up-{number}")
    asked = world.api.asked["SubjectAccessReview"]
    assert await world.check("good") is None
    assert world.api.asked["SubjectAccessReview"] == asked
    kept = [answers for answers in vars(world.reviewer).values() if isinstance(answers, dict)]
    assert sorted(map(len, kept)) == [1, REMEMBERED]


async def test_only_a_few_questions_are_under_way_at_once():
    world = World()
    world.api.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(world.check(f"made-up-{number}")) for number in range(20)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.api.under_way == ASKING_AT_ONCE
        world.api.hold.set()
    assert [check.result() for check in checks] == [BAD_TOKEN] * 20
    assert world.api.most_under_way == ASKING_AT_ONCE


async def test_who_waits_for_his_turn_gets_the_answer_that_came_meanwhile():
    world = World()
    world.api.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(world.check("good")) for _ in range(20)]
        for _ in range(10):
            await asyncio.sleep(0)
        world.api.hold.set()
    assert [check.result() for check in checks] == [None] * 20
    assert world.api.asked["TokenReview"] == ASKING_AT_ONCE


async def test_whatever_answers_in_the_api_servers_place_lets_nobody_in():
    class Stranger:
        async def request(self, *_: object, **__: object) -> bytes:
            return b"<html>"

    assert await Reviewer(Stranger(), clock=Clock()).check("Bearer good") == NO_ANSWER


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b'{"status": null}',
        b'{"status": {"authenticated": true}}',
        b'{"status": {"authenticated": false, "allowed": true, "user": {"username": "bob"}}}',
    ],
)
async def test_an_answer_that_does_not_say_yes_is_a_no(answer: bytes):
    class Vague:
        async def request(self, *_: object, **__: object) -> bytes:
            return answer

    assert await Reviewer(Vague(), clock=Clock()).check("Bearer good") == BAD_TOKEN
