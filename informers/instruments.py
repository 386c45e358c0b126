"""Interfaces through which the client, the informers and the work queue report their work, for example as metrics.

The default, `NO_INSTRUMENTS`, does nothing. The methods are synchronous, must be cheap and must not raise. All
durations are in seconds.
"""

from __future__ import annotations

from typing import Protocol


class ClientInstruments(Protocol):
    def request_finished(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        """A request ended. `code` is the HTTP code, or "<error>" if no answer came. `verb` is the HTTP method."""


class InformerInstruments(Protocol):
    """`resource` is `Resource.name`, such as `virtualmachineinstances.kubevirt.io`."""

    def listed(self, resource: str, *, reason: str) -> None:
        """A complete list arrived; `reason` is "start", "expired" or "failure"."""

    def watch_started(self, resource: str) -> None: ...

    def watch_ended(self, resource: str, *, reason: str) -> None:
        """A watch ended.

        `reason` is "end" (the server closed it), "expired" (410), "silent", the class name of an error, or "restart"
        (the informer closed it in order to list again).
        """

    def progress(self, resource: str) -> None:
        """Data arrived: an event, a bookmark or a page of a list."""

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
    """Implements all three interfaces and does nothing."""

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
