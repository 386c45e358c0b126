"""This module defines one exception type for each kind of failure of a request to the API server.

    ApiError
    ├── TransportError         no usable answer arrived; `sent` is True if the server may have got the request
    │   └── GateClosed         the gate forbade a write
    └── StatusError            the server answered with a Status
        ├── Unauthorized 401   ├── Forbidden 403        ├── NotFound 404
        ├── Conflict 409       ├── AlreadyExists 409    ├── Gone 410 (expired version or page token)
        ├── Invalid 422        ├── TooManyRequests 429  └── ServerError 5xx
        │                                                   └── ServerTimeout 504 (and ResourceVersionTooLarge)
        └── StatusError itself: any other status

The text of a StatusError is the server's message. A longer message is cut to 1,024 characters. A JSON or Go dump of an
object in the message is left out. No error contains the body of an answer or a token.
"""

import re

import msgspec
from msgspec import Struct

MESSAGE_LIMIT = 1024
"""Longest message of a StatusError in characters. A Kubernetes Event may have at most 1,024 bytes."""


class StatusCause(Struct, frozen=True):
    reason: str | None = None


class StatusDetails(Struct, frozen=True, rename="camel"):
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(Struct, frozen=True):
    """A description of a failure by the API server (`metav1.Status`), in an HTTP answer or an ERROR event."""

    kind: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


class ApiError(Exception):
    """A request failed. `str(error)` is a message for users."""


class TransportError(ApiError):
    """The server did not send a usable answer, for example because the connection was refused, reset or timed out.

    If `sent` is True, the server may have carried out the request. It is False only if this is certainly not so.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class AnswerTooLarge(TransportError):
    """The answer to a read is longer than the caller wants in memory. The rest of it was not read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class GateClosed(TransportError):
    """The gate forbade a write, so the client did not send it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class StatusError(ApiError):
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
        """True if the namespace is being deleted. Until its deletion is complete, each new object is rejected."""
        return "NamespaceTerminating" in self.causes


class NotFound(StatusError):
    pass


class Conflict(StatusError):
    """The object changed after the client read it, or a precondition of the request (UID, resourceVersion) failed."""


class AlreadyExists(StatusError):
    pass


class Gone(StatusError):
    """The resourceVersion or the page token is too old. The caller has to start a new list."""


class Invalid(StatusError):
    pass


class TooManyRequests(StatusError):
    pass


class ServerError(StatusError):
    pass


class ServerTimeout(ServerError):
    @property
    def version_too_large(self) -> bool:
        """True if the server lacks the data of the requested resourceVersion. It probably has them after a second."""
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

_LONGEST_READ = 4 * MESSAGE_LIMIT
_DUMP = re.compile(
    # JSON and Go's %v and %#v begin with one of these texts. The search looks at each name of a type once.
    r"""(?:map\[|(?:(?<![\w.])|(?=&))&?[\w.]*+\{\s*+(?:\\?["']|\w++:)|\[\s*+\{).*""",
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")

decode_status = msgspec.json.Decoder(Status).decode


def from_response(code: int, body: bytes, *, retry_after: str | None = None) -> StatusError:
    """Return the error for an HTTP answer. Its message is that of the Status in `body`, or else only the code."""
    try:
        status = decode_status(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = Status()
    if status.kind != "Status":
        status = Status(message=f"the server answered HTTP {code}")
    return from_status(status, code=code, retry_after=retry_after)


def from_status(status: Status, *, code: int | None = None, retry_after: str | None = None) -> StatusError:
    """Return the error for a Status with this code, or in an ERROR event with its own code, or else 500."""
    number = code or status.code or 500
    details = status.details or StatusDetails()
    reason = status.reason or ""
    kind = _BY_CODE.get(number, ServerError if number >= 500 else StatusError)
    return (AlreadyExists if number == 409 and reason == "AlreadyExists" else kind)(
        without_dumps(status.message or reason or f"the server answered HTTP {number}")[:MESSAGE_LIMIT],
        code=number,
        reason=reason,
        retry_after_s=_seconds(retry_after, details.retry_after_seconds),
        causes=tuple(cause.reason or "" for cause in details.causes or ()),
    )


def without_dumps(message: str) -> str:
    """Return the message with "{...}" in place of a dump of an object, and without control characters.

    A webhook may quote an object with passwords. The dump may be cut off, so all text after its beginning is left out.
    """
    return _CONTROL.sub(" ", _DUMP.sub("{...}", message[:_LONGEST_READ]))


def _seconds(header: str | None, details: int | None) -> float | None:
    if header is not None and header.isascii() and header.isdigit():
        return float(header)
    return float(details) if details is not None else None


def is_unreachable(error: ApiError) -> bool:
    """Return True if no connection could be opened, or if a gateway answered that no server is available."""
    if isinstance(error, TransportError):
        return not error.sent
    return isinstance(error, ServerError) and error.code in {502, 503}


def requested_delay_s(error: Exception, *, longest_s: float) -> float:
    """Return the delay that the server asks for before the next try, at most `longest_s`, or 0."""
    wanted_s = error.retry_after_s if isinstance(error, StatusError) else None
    return min(wanted_s or 0.0, longest_s)


def is_transient(error: ApiError) -> bool:
    """Return True if the request itself did not cause the error. Then the same request may succeed later."""
    return isinstance(error, TransportError | TooManyRequests | ServerError)
