"""API servers with prepared answers, for code that sends single requests."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from informers.errors import ApiError


class Call(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str]
    body: bytes
    content_type: str
    accept: str
    timeout_s: float | None


class Answering(ABC):
    """A base class of fake clients. `request` returns the result of `answer`, which a subclass defines."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        return await self.answer(Call(method, path, params or {}, body or b"", content_type, accept, timeout_s))

    @abstractmethod
    async def answer(self, call: Call) -> bytes: ...


class AnswersByPath(Answering):
    """A list of answers for each path. The last answer of a list is repeated. An ApiError in a list is raised."""

    def __init__(self, by_path: Mapping[str, list[Any]]) -> None:
        self.by_path = dict(by_path)
        self.asked: list[str] = []

    async def answer(self, call: Call) -> bytes:
        self.asked.append(call.path)
        return encoded(self.next(call.path))

    def next(self, path: str) -> Any:
        answers = self.by_path[path]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def encoded(answer: Any) -> bytes:
    """Return the body of an answer. If the answer is an ApiError, raise it."""
    if isinstance(answer, ApiError):
        raise answer
    return answer if isinstance(answer, bytes) else json.dumps(answer).encode()
