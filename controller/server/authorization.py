"""Checks whether the sender of a request may read the metrics, with a TokenReview and a SubjectAccessReview.

Metrics are most useful during an outage. So while the API server does not answer, a permission stays valid for five
minutes. The keys of the caches are hashes of tokens. Tokens are never stored, logged or shown.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final

import structlog
from msgspec import Struct

from controller.access import ACCESS_REVIEWS, TOKEN_REVIEWS, review
from controller.runtime.execute.requests import Requests
from informers.errors import ApiError
from informers.resource import UNDECODABLE

log = structlog.get_logger()

PATH: Final = "/metrics"
ALLOWED_FOR_S: Final = 60.0
DENIED_FOR_S: Final = 10.0
ALLOWED_AT_MOST_S: Final = 300.0
CACHED_ANSWERS: Final = 500
"""The most answers in each of the caches. Invented tokens only fill that of denials."""

MAX_REVIEWS_IN_FLIGHT: Final = 4
WARN_EVERY_S: Final = 10.0


class Denial(Struct, frozen=True):
    """The denial of a request for metrics: an HTTP status, and one line with the reason."""

    status: int
    why: str


NO_TOKEN: Final = Denial(401, "send the header 'Authorization: Bearer <token>' with the token of a service account")
BAD_TOKEN: Final = Denial(401, "the API server does not accept this token")
NO_ANSWER: Final = Denial(503, "the token cannot be checked now; see the log of vmherd for the reason")


class _Answer(Struct, frozen=True):
    denial: Denial | None
    at: float


class Reviewer:
    """The check, with one cache for all requests. `clock` returns seconds of a monotonic clock."""

    def __init__(self, client: Requests, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._allowed: dict[bytes, _Answer] = {}
        self._denied: dict[bytes, _Answer] = {}
        self._reviews = asyncio.Semaphore(MAX_REVIEWS_IN_FLIGHT)
        self._warned_at = float("-inf")

    async def check(self, authorization: str) -> Denial | None:
        """Return None if the sender of this Authorization header may read the metrics. Otherwise, return the denial."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return NO_TOKEN
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        answer = self._cached(digest)
        if answer is None:
            async with self._reviews:
                # Look again: another task may have checked the same token while this task waited for the semaphore.
                answer = self._cached(digest) or await self._ask(digest, token)
        return answer.denial

    def _cached(self, digest: bytes) -> _Answer | None:
        now = self._clock()
        for answers, valid_s in ((self._allowed, ALLOWED_FOR_S), (self._denied, DENIED_FOR_S)):
            answer = answers.get(digest)
            if answer is not None and now - answer.at < valid_s:
                return answer
        return None

    async def _ask(self, digest: bytes, token: str) -> _Answer:
        try:
            denial = await self._review(token)
        except (ApiError, *UNDECODABLE) as error:
            self._warn("cannot check the token of a metrics request", why=str(error))
            last = self._allowed.get(digest)
            if last is not None and self._clock() - last.at < ALLOWED_AT_MOST_S:
                return last
            return _Answer(NO_ANSWER, self._clock())
        answer = _Answer(denial, self._clock())
        self._allowed.pop(digest, None)
        self._denied.pop(digest, None)
        answers = self._allowed if denial is None else self._denied
        if len(answers) >= CACHED_ANSWERS:
            del answers[next(iter(answers))]  # the oldest answer
        answers[digest] = answer
        if denial is not None:
            self._warn("denied a metrics request", why=denial.why)
        return answer

    async def _review(self, token: str) -> Denial | None:
        """Return the denial of a token, or None if its user may read the metrics. Raises ApiError or DecodeError."""
        found = await review(self._client, TOKEN_REVIEWS, "TokenReview", {"token": token})
        if not found.authenticated or found.user is None:
            return BAD_TOKEN
        user = found.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
        }
        if (await review(self._client, ACCESS_REVIEWS, "SubjectAccessReview", spec)).allowed:
            return None
        return Denial(403, f"{user.username} may not get {PATH}; a ClusterRole must allow this nonResourceURL")

    def _warn(self, event: str, *, why: str) -> None:
        """Log a warning, at most once in WARN_EVERY_S seconds, so that invented tokens do not fill the log."""
        now = self._clock()
        if now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning(event, why=why)
