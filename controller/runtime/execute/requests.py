"""An interface for single API requests, and the timeout for such a request."""

from collections.abc import Mapping
from typing import Final, Protocol

REQUEST_TIMEOUT_S: Final = 5.0


class Requests(Protocol):
    """A client that sends one request. `request` returns the body of the answer as bytes, and raises ApiError."""

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
    ) -> bytes: ...
