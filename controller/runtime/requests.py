"""The API as those see it who ask it a question now and then: one request, and how long it may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

REQUEST_TIMEOUT_S: Final = 5.0


class Requests(Protocol):
    """The one thing that they need of a client. Returns the answer's bytes, and raises ApiError."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes: ...
