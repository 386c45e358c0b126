"""Every way in which a request to the API server can fail, typed once, at the edge.

    ApiError
    ├── TransportError         no answer; `sent` says whether the request may have reached the server
    │   └── GateClosed         the gate held a write back
    └── StatusError            the server answered with a Status
        ├── Unauthorized 401   ├── Forbidden 403        ├── NotFound 404
        ├── Conflict 409       ├── AlreadyExists 409    ├── Gone 410 (expired version or page token)
        ├── Invalid 422        ├── TooManyRequests 429  └── ServerError 5xx
        │                                                   └── ServerTimeout 504 (and ResourceVersionTooLarge)
        └── (itself)           any other status

Errors carry the server's message, which is written for people, trimmed; never a body, never a token.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

MESSAGE_LIMIT = 1024
"""Events allow a message of 1,024 bytes; a Status can be far longer."""


class StatusCause(Struct, frozen=True):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(Struct, frozen=True, rename="camel"):
    name: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(Struct, frozen=True):
    """`metav1.Status`: the API server's own description of a failure, also sent inside a watch as an ERROR event."""

    kind: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


class ApiError(Exception):
    """A request failed. `str()` is one line for people."""


class TransportError(ApiError):
    """No answer: refused, reset, timed out. `sent` is False only when the request surely never left."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class GateClosed(TransportError):
    """The gate held a write back: it never left."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class StatusError(ApiError):
    """The server answered, and not with success."""

    def __init__(
        self,
        message: str,
        *,
        code: int,
        reason: str = "",
        retry_after_s: float | None = None,
        causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.causes = causes


class Unauthorized(StatusError):
    pass


class Forbidden(StatusError):
    @property
    def namespace_terminating(self) -> bool:
        """Nothing can be created in a namespace on its way out; retrying is pointless until it is gone."""
        return "NamespaceTerminating" in self.causes


class NotFound(StatusError):
    pass


class Conflict(StatusError):
    """The object changed since it was read, or a precondition (UID, resourceVersion) did not hold."""


class AlreadyExists(StatusError):
    pass


class Gone(StatusError):
    """The version or page token is too old: list again."""


class Invalid(StatusError):
    pass


class TooManyRequests(StatusError):
    pass


class ServerError(StatusError):
    pass


class ServerTimeout(ServerError):
    @property
    def version_too_large(self) -> bool:
        """The server has not yet seen the resourceVersion that was asked for: ask again in a moment."""
        return "ResourceVersionTooLarge" in self.causes


_BY_CODE: dict[int, type[StatusError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    504: ServerTimeout,
}

_decode_status = msgspec.json.Decoder(Status).decode


def from_response(code: int, body: bytes, *, retry_after: str | None = None) -> StatusError:
    """Build the error for an HTTP answer that is no success.

    `body` is trusted only where it is a Status; a proxy's HTML page becomes "HTTP 502" and nothing more.
    """
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        status = Status()
    if status.kind != "Status":
        status = Status(message=f"the server answered HTTP {code}")
    return from_status(status, code=code, retry_after=retry_after)


def from_status(status: Status, *, code: int | None = None, retry_after: str | None = None) -> StatusError:
    """Build the error for a Status, of an answer or of a watch's ERROR event."""
    number = code or status.code or 500
    details = status.details or StatusDetails()
    reason = status.reason or ""
    return _class_for(number, reason)(
        (status.message or reason or f"the server answered HTTP {number}")[:MESSAGE_LIMIT],
        code=number,
        reason=reason,
        retry_after_s=_seconds(retry_after, details.retry_after_seconds),
        causes=tuple(cause.reason or "" for cause in details.causes or ()),
    )


def _class_for(code: int, reason: str) -> type[StatusError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if code >= 500:
        return _BY_CODE.get(code, ServerError)
    return _BY_CODE.get(code, StatusError)


def _seconds(header: str | None, details: int | None) -> float | None:
    if header is not None and header.isascii() and header.isdigit():
        return float(header)
    return float(details) if details is not None else None
