"""The Event recorder: it tells users in Events what happened to their objects.

`publish` only stores the notices in a queue. It never waits and never raises an exception, so it cannot delay a
reconcile or make it fail. One service sends the Events, one request at a time, so the Events of an object keep their
order. If an Event still waits in the queue, a repeat only raises its count. A thousand similar notices at once
therefore need about ten requests.

Events that cannot be sent are dropped and counted by reason:

    queue_full       the queue is full
    spam             the object has used up its token bucket
    namespace_gone   the namespace is being deleted or does not exist
    refused          the server rejected the Event
    unreachable      several attempts failed: no answer, or a server-side failure
    not_leader       this process does not hold the lease
    failed           any other error
    shutdown         the Event was still in the queue when the process stopped

If an Event is dropped for `queue_full`, `spam` or another temporary reason, its count is not lost: if the Event occurs
again, the next request carries the full count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Protocol

import structlog

from controller.events.correlator import Correlator, ObjectRef, Occasions, Series, SpamFilter
from controller.events.event import EVENTS, body_of, namespace_of, patch_of
from controller.runtime.plan import AnyResource, Notice
from informers.errors import (
    AlreadyExists,
    Forbidden,
    GateClosed,
    NotFound,
    ServerError,
    StatusError,
    TooManyRequests,
    TransportError,
)
from informers.meta import ObjectKey
from informers.objects import PatchType

__all__ = ["DROP_REASONS", "EVENTS", "EventInstruments", "EventRecorder", "EventSink", "ObjectRef"]

log = structlog.get_logger()

QUEUE_SIZE = 1000

RETRY_DELAYS_S = (1.0, 4.0, 16.0)
"""Together longer than a restart of the API server."""

DROP_REASONS = ("queue_full", "spam", "namespace_gone", "refused", "unreachable", "not_leader", "failed", "shutdown")


class EventSink(Protocol):
    """The part of the API client that the recorder uses."""

    async def create(self, resource: AnyResource, namespace: str, body: bytes) -> bytes: ...

    async def patch(self, resource: AnyResource, key: ObjectKey, body: bytes, *, content_type: str) -> bytes: ...


class EventInstruments(Protocol):
    """The metric of dropped Events."""

    def event_dropped(self, reason: str) -> None: ...


class EventRecorder:
    """Publishes notices as Events. One recorder serves all kinds of a process. See the docstring of the module."""

    def __init__(
        self,
        client: EventSink,
        *,
        component: str,
        now: Callable[[], datetime],
        instruments: EventInstruments,
        instance: str = "",
        queue_size: int = QUEUE_SIZE,
    ) -> None:
        """`component` is the source of Events for which `publish` gets no component. `now` is the wall clock in UTC.

        `instance` identifies the replica of the controller, for example by the name of its Pod.
        """
        self._client = client
        self._component = component
        self._now = now
        self._instruments = instruments
        self._instance = instance
        self._queue_size = queue_size

        self._correlator = Correlator()
        self._spam_filter = SpamFilter()
        self._occasions = Occasions()

        self._waiting: dict[Series, None] = {}
        """The queue: Events with changes that the server does not have yet, oldest change first."""

        self._work = asyncio.Event()
        """Set while the queue is not empty."""

        self._idle = asyncio.Event()
        """Set while the queue is empty and no Event is being sent."""
        self._idle.set()

        self._failing = False
        """True if the last Event could not be sent. Of several successive failures, only the first is a warning."""

    def __len__(self) -> int:
        """The number of Events in the queue."""
        return len(self._waiting)

    def publish(self, ref: ObjectRef, notices: Iterable[Notice], *, component: str = "") -> None:
        """Queue the notices about an object, in this order. Never waits and never raises an exception."""
        try:
            at = self._now()
            for notice in notices:
                self._record(ref, notice, component or self._component, at)
        except Exception:
            # The reconcile that publishes has finished its writes. A failed Event must not make the reconcile fail.
            self._instruments.event_dropped("failed")
            log.exception("event not recorded", namespace=ref.namespace, name=ref.name)

    async def run(self) -> None:
        """Send the queued Events until cancelled."""
        while True:
            await self._work.wait()
            series = next(iter(self._waiting))
            self._dequeue(series)
            try:
                await self._deliver(series)
            finally:
                if not self._waiting:
                    self._idle.set()

    async def flush(self, timeout_s: float) -> None:
        """Wait until the queue is empty; after `timeout_s`, drop the rest. `run` must be running."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("events not sent in time", waiting=len(self._waiting), waited_s=timeout_s)
            for series in tuple(self._waiting):
                self._dequeue(series)
                self._instruments.event_dropped("shutdown")

    def _record(self, ref: ObjectRef, notice: Notice, component: str, at: datetime) -> None:
        occasion = (ref.uid, notice.reason, notice.once)
        if notice.once and self._occasions.is_reported(occasion):
            return
        series = self._correlator.record(
            ref,
            component=component,
            reason=notice.reason,
            message=notice.message,
            warning=notice.warning,
            at=at,
        )
        if self._enqueue(series, at) and notice.once:
            self._occasions.mark_reported(occasion)

    def _enqueue(self, series: Series, at: datetime) -> bool:
        """Put the Event into the queue. Return False if it is dropped instead."""
        if series in self._waiting:
            return True
        if len(self._waiting) >= self._queue_size:
            self._instruments.event_dropped("queue_full")
            return False
        if not self._spam_filter.admit(series.ref, series.component, at):
            self._instruments.event_dropped("spam")
            return False
        self._waiting[series] = None
        self._work.set()
        self._idle.clear()
        return True

    def _dequeue(self, series: Series) -> None:
        del self._waiting[series]
        if not self._waiting:
            self._work.clear()

    async def _deliver(self, series: Series) -> None:
        """Send one Event, with retries. Drop it if all attempts fail."""
        for delay_s in (*RETRY_DELAYS_S, None):
            try:
                await self._send(series)
            except Exception as error:
                if delay_s is None or not _is_temporary(error):
                    self._drop(series, error)
                    return
                await asyncio.sleep(max(delay_s, _retry_after_s(error)))
            else:
                self._failing = False
                return

    async def _send(self, series: Series) -> None:
        """Create or patch the Event on the server. A repeat after a lost answer does no harm."""
        namespace = namespace_of(series.ref)
        if series.posted:
            try:
                key = ObjectKey(namespace, series.name)
                await self._client.patch(EVENTS, key, patch_of(series), content_type=PatchType.MERGE.value)
            except NotFound:
                series.posted = False  # the Event has expired, by default after one hour
        if not series.posted:
            # AlreadyExists: an earlier attempt succeeded but its answer was lost. If the count has changed since then,
            # the Event is in the queue again.
            with suppress(AlreadyExists):
                await self._client.create(EVENTS, namespace, body_of(series, instance=self._instance))
            series.posted = True

    def _drop(self, series: Series, error: Exception) -> None:
        reason = _drop_reason(error)
        self._instruments.event_dropped(reason)
        if reason in {"namespace_gone", "not_leader"}:
            return
        emit = log.debug if self._failing else log.warning
        self._failing = True
        emit(
            "event not sent",
            why=reason,
            error=str(error),
            namespace=series.ref.namespace,
            name=series.ref.name,
            event_reason=series.reason,
        )


def _is_temporary(error: Exception) -> bool:
    """True if a retry may succeed."""
    return isinstance(error, TransportError | ServerError | TooManyRequests) and not isinstance(error, GateClosed)


def _retry_after_s(error: Exception) -> float:
    """Return the delay that the server asks for, but at most the longest retry delay, because other Events wait."""
    requested_s = error.retry_after_s if isinstance(error, StatusError) else None
    return min(requested_s or 0.0, RETRY_DELAYS_S[-1])


def _drop_reason(error: Exception) -> str:
    match error:
        case NotFound():
            return "namespace_gone"
        case Forbidden(namespace_terminating=True):
            return "namespace_gone"
        case GateClosed():
            return "not_leader"
        case TransportError() | ServerError() | TooManyRequests():
            return "unreachable"
        case StatusError():
            return "refused"
        case _:
            return "failed"
