"""The actions of the fault proxy. Each action is a frozen value."""

from typing import Literal, TypeAlias

from msgspec import Struct


class Action(Struct, frozen=True):
    """The base class of all actions."""


class OnRequest(Action, frozen=True):
    """An action on a request, or on its answer."""


class OnStream(Action, frozen=True):
    """An action on a watch that needs no event. It also acts on watches that are open already."""


class OnEvent(Action, frozen=True):
    """An action on one event of a watch."""


class Refuse(OnRequest, frozen=True):
    """Answer with an error. The request does not reach the server.

    `retry_after` is the text of the header.
    """

    status: int = 503
    retry_after: str = ""


class Reset(OnRequest, frozen=True):
    """Reset the connection. The request does not reach the server."""


class LoseAnswer(OnRequest, frozen=True):
    """Forward the request, wait for the server's answer, and reset the connection in its place."""


class CutAnswer(OnRequest, frozen=True):
    """Reset the connection in the middle of the answer's body."""


Corruption: TypeAlias = Literal["not JSON", "chunk size"]


class Corrupt(OnEvent, frozen=True):
    """Corrupt one event of a watch. "chunk size" breaks the HTTP framing."""

    how: Corruption


class ReplayWatch(OnRequest, frozen=True):
    """Start a watch at an older resource version."""

    resource_version: str = ""


class FailWatch(OnStream, frozen=True):
    """End a watch with an ERROR event. `cause` and `retry_after_seconds` are details of its Status object."""

    status: int = 500
    message: str = "refused by the proxy"
    cause: str = ""
    retry_after_seconds: int = 0


class HoldWatch(OnStream, frozen=True):
    """Hold the data of a watch, so that its reader lags behind. Removing the rule releases the data.

    Without the removal, the watch stays open and silent, as after a power failure of the server.
    """


class EndWatch(OnStream, frozen=True):
    """End a watch: with a complete answer, or with a reset of the connection if `clean` is False."""

    clean: bool = True


class CutWatch(OnEvent, frozen=True):
    """Reset the connection after `at_byte` bytes of the next event, by default in the middle."""

    at_byte: int | None = None


class RepeatEvent(OnEvent, frozen=True):
    """Send an event twice."""


class OmitEvent(OnEvent, frozen=True):
    """Drop an event, and end the watch with 410, so that the reader lists again and never sees this event."""
