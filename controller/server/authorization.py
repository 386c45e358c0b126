"""Who may read the metrics: the API server says whose a token is (TokenReview) and what that user may do
(SubjectAccessReview: get /metrics).

What it said is remembered for a short time, so that a scrape costs no request: a minute where it allowed, ten seconds
where it did not. While it cannot be asked, what it allowed holds a few minutes more, since that is when somebody wants
to see metrics. A token is kept as a hash, and neither logged nor shown.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from controller.runtime.requests import REQUEST_TIMEOUT_S, Requests
from informers.errors import ApiError

log = structlog.get_logger()

PATH: Final = "/metrics"
ALLOWED_FOR_S: Final = 60.0
DENIED_FOR_S: Final = 10.0
ALLOWED_AT_MOST_S: Final = 300.0
"""While the API server cannot be asked again."""

REMEMBERED: Final = 500
"""Answers of either sort. Those who make up tokens cannot push out what is known of real ones."""

ASKING_AT_ONCE: Final = 4
WARN_EVERY_S: Final = 10.0

TOKEN_REVIEWS: Final = "authentication.k8s.io/v1"
ACCESS_REVIEWS: Final = "authorization.k8s.io/v1"


class Denial(Struct, frozen=True):
    """Why somebody may not read the metrics: a status of HTTP, and one line."""

    status: int
    why: str


NO_TOKEN: Final = Denial(401, "send the header 'Authorization: Bearer <token>' with the token of a service account")
BAD_TOKEN: Final = Denial(401, "the API server does not accept this token")
NO_ANSWER: Final = Denial(503, "the token cannot be checked just now; the log of this program says why")


class User(Struct, frozen=True, omit_defaults=True):
    """Whom a token belongs to, as the API server tells it and wants it told again."""

    username: str | None = None
    uid: str | None = None
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None


class _TokenStatus(Struct, frozen=True):
    authenticated: bool | None = None
    user: User | None = None


class _TokenReview(Struct, frozen=True):
    status: _TokenStatus | None = None


class _AccessStatus(Struct, frozen=True):
    allowed: bool | None = None


class _AccessReview(Struct, frozen=True):
    status: _AccessStatus | None = None


_decode_token_review = msgspec.json.Decoder(_TokenReview).decode
_decode_access_review = msgspec.json.Decoder(_AccessReview).decode


class _Answer(Struct, frozen=True):
    denial: Denial | None
    at: float


class Reviewer:
    """Lets in whom the API server allows it. `clock` is monotonic. One of a process."""

    def __init__(self, client: Requests, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._allowed: dict[bytes, _Answer] = {}
        self._denied: dict[bytes, _Answer] = {}
        self._asking = asyncio.Semaphore(ASKING_AT_ONCE)
        self._warned_at = float("-inf")

    async def check(self, authorization: str) -> Denial | None:
        """Whether the sender of this Authorization header may read the metrics: None, or why not."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return NO_TOKEN
        name = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._recall(name)
        if known is None:
            async with self._asking:
                # await: whoever was in front may have asked about the same token.
                known = self._recall(name) or await self._ask(name, token)
        return known.denial

    def _recall(self, name: bytes) -> _Answer | None:
        now = self._clock()
        for answers, valid_s in ((self._allowed, ALLOWED_FOR_S), (self._denied, DENIED_FOR_S)):
            answer = answers.get(name)
            if answer is not None and now - answer.at < valid_s:
                return answer
        return None

    async def _ask(self, name: bytes, token: str) -> _Answer:
        try:
            denial = await self._review(token)
        except (ApiError, msgspec.DecodeError) as error:
            self._warn("cannot check who reads the metrics", why=str(error))
            last = self._allowed.get(name)
            if last is not None and self._clock() - last.at < ALLOWED_AT_MOST_S:
                return last
            return _Answer(NO_ANSWER, self._clock())
        answer = _Answer(denial, self._clock())
        self._allowed.pop(name, None)
        self._denied.pop(name, None)
        if denial is None:
            _keep(self._allowed, name, answer)
        else:
            _keep(self._denied, name, answer)
            self._warn("refused to show the metrics", why=denial.why)
        return answer

    async def _review(self, token: str) -> Denial | None:
        """Ask, both questions. Raises ApiError, or DecodeError where something else answers."""
        body = await self._create(TOKEN_REVIEWS, "TokenReview", {"token": token})
        who = _decode_token_review(body).status
        if who is None or not who.authenticated or who.user is None:
            return BAD_TOKEN
        question = {
            "user": who.user.username,
            "uid": who.user.uid,
            "groups": who.user.groups,
            "extra": who.user.extra,
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
        }
        body = await self._create(ACCESS_REVIEWS, "SubjectAccessReview", question)
        may = _decode_access_review(body).status
        if may is not None and may.allowed:
            return None
        return Denial(403, f"{who.user.username} may not get {PATH}; a ClusterRole has to allow that nonResourceURL")

    async def _create(self, api_version: str, kind: str, spec: Mapping[str, object]) -> bytes:
        body = msgspec.json.encode({"apiVersion": api_version, "kind": kind, "spec": spec})
        path = f"/apis/{api_version}/{kind.lower()}s"
        return await self._client.request("POST", path, body=body, timeout_s=REQUEST_TIMEOUT_S)

    def _warn(self, event: str, *, why: str) -> None:
        """At most one line in a while: whoever guesses tokens must not fill the log."""
        now = self._clock()
        if now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning(event, why=why)


def _keep(answers: dict[bytes, _Answer], name: bytes, answer: _Answer) -> None:
    if len(answers) >= REMEMBERED:
        del answers[next(iter(answers))]
    answers[name] = answer
