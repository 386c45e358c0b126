"""Tells people what happened to their objects, as Events in the API.

`publish` takes notes and returns: it never waits and never raises, so recording can neither delay nor fail a
reconcile. One service sends, one request at a time, which keeps the Events of an object in order. An occurrence whose
Event still waits to be sent only raises that Event's count: a thousand notices in one go are about ten requests.

What cannot be sent is dropped and counted, by reason:

    queue_full       more Events wait than the queue holds
    spam             the object has used up its bucket
    namespace_gone   the namespace is being deleted, or is gone
    refused          the server said no
    unreachable      no answer, or none but failures, after several tries
    not_leader       the lease was lost: another process speaks now
    failed           anything else
    shutdown         still waiting when the process stops

The first two, and all that pass, lose a request and not the count: the Event's next request carries it.
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
"""Long enough together to outlast an API server that restarts."""

DROP_REASONS = ("queue_full", "spam", "namespace_gone", "refused", "unreachable", "not_leader", "failed", "shutdown")


class EventSink(Protocol):
    """What is needed of the API client."""

    async def create(self, resource: AnyResource, namespace: str, body: bytes) -> bytes: ...

    async def patch(self, resource: AnyResource, key: ObjectKey, body: bytes, *, content_type: str) -> bytes: ...


class EventInstruments(Protocol):
    def event_dropped(self, reason: str) -> None: ...


class EventRecorder:
    """See the module's contract. One is enough for a process, whatever it controls."""

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
        """`component` says who speaks where `publish` names nobody else, `now` is the wall clock in UTC.

        `instance` tells replicas of the controller apart, such as a pod's name.
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
        """Events that the server does not show as they are now, in the order in which that became so."""

        self._work = asyncio.Event()
        """Set while an Event waits."""

        self._idle = asyncio.Event()
        """Set while no Event waits and none is being sent."""
        self._idle.set()

        self._failing = False
        """Whether the last Event could not be sent. A row of failures is logged once."""

    def __len__(self) -> int:
        """How many Events wait to be sent."""
        return len(self._waiting)

    def publish(self, ref: ObjectRef, notices: Iterable[Notice], *, component: str = "") -> None:
        """Record what happened to the object, in this order. Never waits, never raises."""
        try:
            at = self._now()
            for notice in notices:
                self._record(ref, notice, component or self._component, at)
        except Exception:
            # The reconcile that speaks here is done with its work: nothing about an Event may undo that.
            self._instruments.event_dropped("failed")
            log.exception("event not recorded", namespace=ref.namespace, name=ref.name)

    async def run(self) -> None:
        """Send what is published, for ever."""
        while True:
            await self._work.wait()
            series = next(iter(self._waiting))
            self._strike(series)
            try:
                await self._deliver(series)
            finally:
                if not self._waiting:
                    self._idle.set()

    async def flush(self, timeout_s: float) -> None:
        """Wait until all is sent, so long at most; drop the rest. `run` must be running meanwhile."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("events not sent in time", waiting=len(self._waiting), waited_s=timeout_s)
            for series in tuple(self._waiting):
                self._strike(series)
                self._instruments.event_dropped("shutdown")

    def _record(self, ref: ObjectRef, notice: Notice, component: str, at: datetime) -> None:
        occasion = (ref.uid, notice.reason, notice.once)
        if notice.once and self._occasions.told(occasion):
            return
        series = self._correlator.tell(
            ref,
            component=component,
            reason=notice.reason,
            message=notice.message,
            warning=notice.warning,
            at=at,
        )
        if self._enqueue(series, at) and notice.once:
            self._occasions.remember(occasion)

    def _enqueue(self, series: Series, at: datetime) -> bool:
        """Have the Event sent; False when it is dropped instead."""
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

    def _strike(self, series: Series) -> None:
        del self._waiting[series]
        if not self._waiting:
            self._work.clear()

    async def _deliver(self, series: Series) -> None:
        """Send one Event; drop it when that does not work out."""
        for delay_s in (*RETRY_DELAYS_S, None):
            try:
                await self._send(series)
            except Exception as error:
                if delay_s is None or not _passes(error):
                    self._lose(series, error)
                    return
                await asyncio.sleep(max(delay_s, _retry_after_s(error)))
            else:
                self._failing = False
                return

    async def _send(self, series: Series) -> None:
        """Make the server show the Event as it is now. Sent again after a lost answer, it does no harm."""
        namespace = namespace_of(series.ref)
        if series.posted:
            try:
                key = ObjectKey(namespace, series.name)
                await self._client.patch(EVENTS, key, patch_of(series), content_type=PatchType.MERGE.value)
            except NotFound:
                series.posted = False  # Events expire, after an hour as a rule
        if not series.posted:
            # An earlier try may have got through. What has happened since then waits to be sent by itself.
            with suppress(AlreadyExists):
                await self._client.create(EVENTS, namespace, body_of(series, instance=self._instance))
            series.posted = True

    def _lose(self, series: Series, error: Exception) -> None:
        reason = _drop_reason(error)
        self._instruments.event_dropped(reason)
        if reason in {"namespace_gone", "not_leader"}:
            return
        write = log.debug if self._failing else log.warning
        self._failing = True
        write(
            "event not sent",
            why=reason,
            error=str(error),
            namespace=series.ref.namespace,
            name=series.ref.name,
            event_reason=series.reason,
        )


def _passes(error: Exception) -> bool:
    return isinstance(error, TransportError | ServerError | TooManyRequests) and not isinstance(error, GateClosed)


def _retry_after_s(error: Exception) -> float:
    """What the server asks for, within reason: other Events wait behind this one."""
    asked_s = error.retry_after_s if isinstance(error, StatusError) else None
    return min(asked_s or 0.0, RETRY_DELAYS_S[-1])


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
