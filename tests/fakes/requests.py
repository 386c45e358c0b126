"""Requests to the fake API server, and the failures of such requests."""

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from informers.errors import Status, StatusCause, StatusDetails, StatusError, from_status
from informers.meta import ObjectKey
from informers.resource import Resource

Document: TypeAlias = dict[str, Any]
AnyResource: TypeAlias = Resource[Any]


class Request(NamedTuple):
    """One request. `verb` is get, list, create, patch, update or delete."""

    verb: str
    resource: AnyResource
    key: ObjectKey
    subresource: str = ""
    dry_run: bool = False

    @property
    def is_write(self) -> bool:
        return self.verb not in ("get", "list") and not self.dry_run


class Lost(Enum):
    """The connection breaks. The client does not know whether the request had an effect."""

    BEFORE = "before the server did anything"
    AFTER = "after the server did it"


class Garbled(NamedTuple):
    """The request has its effect. A proxy replaces the server's answer by a success with another body."""

    body: bytes = b"<html>welcome</html>"


Fault: TypeAlias = Lost | Garbled | Exception
"""The fault of a request. If the fault is an exception, the request has no effect, and the client raises the exception.
"""


def refusal(code: int, reason: str, message: str, *causes: str, retry_after_s: int | None = None) -> StatusError:
    """The error that the client raises if the server answers with this Status."""
    details = StatusDetails(causes=tuple(map(StatusCause, causes)), retry_after_seconds=retry_after_s)
    return from_status(Status(kind="Status", reason=reason, message=message, code=code, details=details))
