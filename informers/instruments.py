"""What the machinery reports while it works. The defaults do nothing; the controller plugs in its metrics.

Calls are synchronous, must be cheap and must not raise. All durations are in seconds.
"""

from __future__ import annotations

from typing import Protocol


class ClientInstruments(Protocol):
    def request_finished(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        """One answer, or `code="<error>"` where none came. `verb` is the HTTP method."""


class InformerInstruments(Protocol):
    """`resource` is `Resource.name`, such as `virtualmachineinstances.kubevirt.io`."""

    def listed(self, resource: str, *, reason: str) -> None:
        """A complete list arrived; `reason` is "start", "expired" or "failure"."""

    def watch_started(self, resource: str) -> None: ...

    def watch_ended(self, resource: str, *, reason: str) -> None:
        """`reason` is "end" (clean), "expired" (410), "silent", or the error's class name."""

    def progress(self, resource: str) -> None:
        """Something arrived: an event, a bookmark, a page."""

    def decode_failed(self, resource: str) -> None: ...

    def store_size(self, resource: str, objects: int) -> None: ...

    def handler_failed(self, resource: str) -> None: ...


class QueueInstruments(Protocol):
    """`queue` is the queue's name."""

    def depth(self, queue: str, items: int) -> None: ...

    def added(self, queue: str) -> None: ...

    def retried(self, queue: str) -> None: ...

    def started(self, queue: str, *, waited_s: float) -> None: ...

    def finished(self, queue: str, *, worked_s: float) -> None: ...


class NoInstruments:
    """Reports to nobody."""

    def request_finished(self, *, verb: str, host: str, code: str, seconds: float) -> None: ...

    def listed(self, resource: str, *, reason: str) -> None: ...

    def watch_started(self, resource: str) -> None: ...

    def watch_ended(self, resource: str, *, reason: str) -> None: ...

    def progress(self, resource: str) -> None: ...

    def decode_failed(self, resource: str) -> None: ...

    def store_size(self, resource: str, objects: int) -> None: ...

    def handler_failed(self, resource: str) -> None: ...

    def depth(self, queue: str, items: int) -> None: ...

    def added(self, queue: str) -> None: ...

    def retried(self, queue: str) -> None: ...

    def started(self, queue: str, *, waited_s: float) -> None: ...

    def finished(self, queue: str, *, worked_s: float) -> None: ...


NO_INSTRUMENTS = NoInstruments()
