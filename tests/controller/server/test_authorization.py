import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.server import authorization
from informers.errors import Forbidden, TransportError
from tests.fakes.answers import Answering, Call
from tests.fakes.virtual_time import Clock

PROMETHEUS = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "17",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}


class Api(Answering):
    """An API server that accepts some tokens and permits some users to get /metrics."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {"good": PROMETHEUS, "weak": {"username": "bob"}}
        self.allowed = {PROMETHEUS["username"]}
        self.sent: Counter[str] = Counter()
        self.access_reviews: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.in_flight = self.max_in_flight = 0

    async def answer(self, call: Call) -> bytes:
        assert (call.method, call.params, call.content_type) == ("POST", {}, "application/json")
        assert call.timeout_s is not None
        assert call.timeout_s <= 10
        review = json.loads(call.body)
        self.sent[review["kind"]] += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            if self.hold is not None:
                await self.hold.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.in_flight -= 1
        if review["kind"] == "TokenReview":
            assert call.path == "/apis/authentication.k8s.io/v1/tokenreviews"
            user = self.users.get(review["spec"]["token"])
            return json.dumps({"status": {"authenticated": user is not None, "user": user}}).encode()
        assert call.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        self.access_reviews.append(review["spec"])
        return json.dumps({"status": {"allowed": review["spec"]["user"] in self.allowed}}).encode()


class ReviewerSetup:
    """A Reviewer with a simulated API server and clock."""

    def __init__(self) -> None:
        self.api = Api()
        self.clock = Clock()
        self.reviewer = authorization.Reviewer(self.api, clock=self.clock)

    async def check(self, token: str) -> authorization.Denial | None:
        return await self.reviewer.check(f"Bearer {token}")


@pytest.fixture
def setup() -> ReviewerSetup:
    return ReviewerSetup()


MAY_NOT = authorization.Denial(403, "bob may not get /metrics; a ClusterRole must allow this nonResourceURL")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer good", None),
        ("bearer good", None),
        ("BEARER good", None),
        ("Bearer   good  ", None),
        ("Bearer made-up", authorization.BAD_TOKEN),
        ("Bearer weak", MAY_NOT),
    ],
)
async def test_the_user_of_the_token_needs_the_permission(setup, header: str, expected: authorization.Denial | None):
    assert await setup.reviewer.check(header) == expected
    assert authorization.BAD_TOKEN.status == 401


async def test_the_access_review_has_the_user_the_path_and_the_verb(setup):
    await setup.check("good")
    [review] = setup.api.access_reviews
    assert review.pop("nonResourceAttributes") == {"path": "/metrics", "verb": "get"}
    assert review == {"user": PROMETHEUS["username"], **{k: v for k, v in PROMETHEUS.items() if k != "username"}}


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic Z29vZDo=", "good"])
async def test_without_a_bearer_token_no_review_is_sent(setup, header: str):
    assert await setup.reviewer.check(header) == authorization.NO_TOKEN
    assert (authorization.NO_TOKEN.status, setup.api.sent) == (401, Counter())


@pytest.mark.parametrize(
    ("token", "reviews", "valid_s"),
    [
        ("good", {"TokenReview": 1, "SubjectAccessReview": 1}, authorization.ALLOWED_FOR_S),
        ("weak", {"TokenReview": 1, "SubjectAccessReview": 1}, authorization.DENIED_FOR_S),
        ("made-up", {"TokenReview": 1}, authorization.DENIED_FOR_S),
    ],
)
async def test_an_answer_is_cached_for_its_time_and_no_longer(
    setup: ReviewerSetup, token: str, reviews: dict[str, int], valid_s: float
):
    first = await setup.check(token)
    setup.clock.now += valid_s - 1
    assert await setup.check(token) == first
    assert setup.api.sent == reviews
    setup.clock.now += 1
    assert await setup.check(token) == first
    assert setup.api.sent == {kind: 2 * times for kind, times in reviews.items()}


async def test_the_cached_answer_for_one_token_is_not_used_for_another(setup):
    assert await setup.check("good") is None
    assert await setup.check("made-up") == authorization.BAD_TOKEN
    assert await setup.check("good") is None


async def test_a_revoked_permission_ends_when_its_cached_answer_expires(setup):
    await setup.check("good")
    setup.api.allowed.clear()
    setup.clock.now += authorization.ALLOWED_FOR_S
    denial = await setup.check("good")
    assert denial is not None
    assert denial.status == 403
    setup.api.error = TransportError("down", sent=False)
    setup.clock.now += authorization.DENIED_FOR_S
    assert await setup.check("good") == authorization.NO_ANSWER, "the earlier permission is no longer cached"


async def test_a_new_permission_takes_effect_when_the_cached_denial_expires(setup):
    await setup.check("weak")
    setup.api.allowed.add("bob")
    setup.clock.now += authorization.DENIED_FOR_S
    assert await setup.check("weak") is None


async def test_without_the_api_server_a_permission_stays_valid_for_a_limited_time(setup):
    await setup.check("good")
    setup.api.error = TransportError("connection refused", sent=False)
    setup.clock.now += authorization.ALLOWED_AT_MOST_S - 1
    assert await setup.check("good") is None
    setup.clock.now += 1
    assert await setup.check("good") == authorization.NO_ANSWER
    assert authorization.NO_ANSWER.status == 503


async def test_without_the_api_server_a_new_token_is_not_accepted(setup):
    setup.api.error = TransportError("connection refused", sent=False)
    assert await setup.check("good") == authorization.NO_ANSWER
    setup.api.error = None
    assert await setup.check("good") is None, "the failure is not cached"


async def test_a_missing_permission_for_reviews_is_only_in_the_log(setup):
    setup.api.error = Forbidden('User "vmherd" cannot create tokenreviews', code=403)
    with capture_logs() as lines:
        assert await setup.check("good") == authorization.NO_ANSWER
    assert [line["event"] for line in lines] == ["cannot check the token of a metrics request"]
    assert "tokenreviews" in lines[0]["why"]


async def test_denials_are_logged_at_a_limited_rate_and_without_the_token(setup):
    with capture_logs() as lines:
        for number in range(50):
            await setup.check(f"s3cret-{number}")
        setup.clock.now += 10
        await setup.check("weak")
    assert [line["event"] for line in lines] == ["denied a metrics request"] * 2
    assert lines[1]["why"].startswith("bob may not")
    assert "s3cret" not in str(lines)


async def test_no_token_is_stored(setup):
    await setup.check("good")
    await setup.check("s3cret")
    assert "good" not in str(vars(setup.reviewer))
    assert "s3cret" not in str(vars(setup.reviewer))


async def test_invented_tokens_do_not_evict_a_real_token(setup):
    await setup.check("good")
    for number in range(authorization.CACHED_ANSWERS + 10):
        await setup.check(f"made-up-{number}")
    sent = setup.api.sent["SubjectAccessReview"]
    assert await setup.check("good") is None
    assert setup.api.sent["SubjectAccessReview"] == sent
    kept = [answers for answers in vars(setup.reviewer).values() if isinstance(answers, dict)]
    assert sorted(map(len, kept)) == [1, authorization.CACHED_ANSWERS]


@pytest.mark.parametrize(
    ("tokens", "expected", "reviews"),
    [
        ([f"made-up-{number}" for number in range(20)], authorization.BAD_TOKEN, 20),
        (["good"] * 20, None, authorization.MAX_REVIEWS_IN_FLIGHT),
    ],
    ids=["different tokens", "a waiting check uses the answer of an earlier check of the same token"],
)
async def test_the_number_of_reviews_in_flight_is_limited(
    setup: ReviewerSetup, tokens: list[str], expected: authorization.Denial | None, reviews: int
):
    setup.api.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(setup.check(token)) for token in tokens]
        for _ in range(10):
            await asyncio.sleep(0)
        assert setup.api.in_flight == authorization.MAX_REVIEWS_IN_FLIGHT
        setup.api.hold.set()
    assert [check.result() for check in checks] == [expected] * 20
    assert setup.api.max_in_flight == authorization.MAX_REVIEWS_IN_FLIGHT
    assert setup.api.sent["TokenReview"] == reviews


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"<html>", authorization.NO_ANSWER),
        (b"{}", authorization.BAD_TOKEN),
        (b'{"status": null}', authorization.BAD_TOKEN),
        (b'{"status": {"authenticated": true}}', authorization.BAD_TOKEN),
        (
            b'{"status": {"authenticated": false, "allowed": true, "user": {"username": "bob"}}}',
            authorization.BAD_TOKEN,
        ),
    ],
)
async def test_an_answer_without_an_explicit_permission_denies_access(answer: bytes, expected: authorization.Denial):
    class NoPermission:
        async def request(self, *_: object, **__: object) -> bytes:
            return answer

    assert await authorization.Reviewer(NoPermission(), clock=Clock()).check("Bearer good") == expected
