"""Sends Kubernetes Events to the users of the objects.

`publish` only stores Events in a queue. `publish` never waits and never raises an exception. So an Event cannot delay a
reconciliation or make it fail. One service sends the Events in the order of the queue, one request at a time. If an
Event occurs again while it is in the queue, only the count of the Event increases. So a thousand similar Events at the
same time need only about ten requests.

Events that cannot be sent are dropped. A metric counts the dropped Events by reason:

    queue_full       the queue is full
    spam             the token bucket of the object is empty
    namespace_gone   the namespace is being deleted or does not exist
    refused          the server rejected the Event
    unreachable      every attempt failed: no answer, a server error, or an overloaded server
    not_leader       this process does not hold the lease
    failed           any other error
    shutdown         the Event was still in the queue when the process stopped

The count of a dropped Event is not lost. If the Event occurs again within ten minutes, the next request contains the
full count.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime

import structlog

from controller.config.settings import Config
from controller.events.correlator import Correlator, ObjectRef, Occasions, Series, SpamFilter
from controller.events.event import EVENTS, body_of, namespace_of, patch_of
from controller.running import is_set_within
from controller.runtime.actions import AnyResource, Notice
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
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import ObjectClient, PatchType

__all__ = ["DROP_REASONS", "EVENTS", "EventRecorder", "ObjectRef"]

log = structlog.get_logger()

QUEUE_SIZE = 1000
RETRY_DELAYS_S = (1.0, 4.0, 16.0)
"""The delays between the attempts to send an Event, in seconds. The sum is longer than a restart of the API server."""

ANNOUNCED_WITHIN_S = 2.0
"""The longest wait for an Event about a second writer. After this time, the process writes nothing, not even Events."""

DROP_REASONS = ("queue_full", "spam", "namespace_gone", "refused", "unreachable", "not_leader", "failed", "shutdown")
"""The reasons for dropped Events. The docstring of this module explains each reason."""


def ref_of(resource: AnyResource, meta: ObjectMeta) -> ObjectRef:
    return ObjectRef(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


class EventRecorder:
    """Sends Events, as explained at the start of this module. A process has one recorder for all kinds."""

    def __init__(
        self,
        client: ObjectClient,
        *,
        component: str,
        now: Callable[[], datetime],
        count_drop: Callable[[str], None],
        instance: str = "",
        queue_size: int = QUEUE_SIZE,
    ) -> None:
        """Create a recorder with an empty queue.

        `component` is the default source of Events. The function `now` returns the wall clock time in UTC. `instance`
        identifies this process, for example by the name of the Pod. `count_drop` is called with the reason for each
        dropped Event.
        """
        self._client = client
        self._component = component
        self._now = now
        self._count_drop = count_drop
        self._instance = instance
        self._queue_size = queue_size

        self._correlator = Correlator()
        self._spam_filter = SpamFilter()
        self._occasions = Occasions()

        self._waiting: dict[Series, None] = {}
        """The queue: Events with changes that were not sent yet.

        The oldest Event in the queue is first.
        """

        self._work = asyncio.Event()
        """This flag is set while the queue is not empty."""

        self._idle = asyncio.Event()
        """This flag is set while the queue is empty and no Event is being sent."""
        self._idle.set()

        self._failing = False
        """True if the last Event could not be sent.

        If several Events in a row cannot be sent, only the first failure is logged as a warning.
        """

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unsent(self) -> int:
        """The number of Events in the queue. While the last Event of the queue is being sent, the number is 1."""
        return len(self._waiting) or int(not self._idle.is_set())

    def publish(self, ref: ObjectRef, notices: Iterable[Notice], *, component: str = "") -> None:
        """Put an Event for each notice about the object into the queue. Never wait and never raise an exception."""
        try:
            at = self._now()
            for notice in notices:
                self._record(ref, notice, component or self._component, at)
        except Exception:
            # The reconciliation that publishes the notices has finished its writes. An error here must not make the
            # reconciliation fail.
            self._count_drop("failed")
            log.exception("event not recorded", namespace=ref.namespace, name=ref.name)

    async def run(self) -> None:
        """Send the Events from the queue until the task is cancelled."""
        while True:
            await self._work.wait()
            series = next(iter(self._waiting))
            self._dequeue(series)
            try:
                await self._deliver(series)
            finally:
                if not self._waiting:
                    self._idle.set()

    async def sent(self, timeout_s: float) -> bool:
        """Wait until all Events are sent, but at most `timeout_s` seconds. Return False if some Events are not sent.

        `run` must be running.
        """
        return await is_set_within(self._idle, timeout_s)

    async def flush(self, timeout_s: float) -> None:
        """Wait until all Events are sent.

        After `timeout_s` seconds, drop all Events in the queue. `run` must be running.
        """
        if await self.sent(timeout_s):
            return
        log.warning("events not sent in time", waiting=len(self._waiting), waited_s=timeout_s)
        for series in tuple(self._waiting):
            self._dequeue(series)
            self._count_drop("shutdown")

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
        """Put the Event into the queue and return True, or drop the Event and return False."""
        if series in self._waiting:
            return True
        if len(self._waiting) >= self._queue_size:
            self._count_drop("queue_full")
            return False
        if not self._spam_filter.admit(series.ref, series.component, at):
            self._count_drop("spam")
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
        """Retry after temporary errors. Drop the Event after any other error, and after the last attempt."""
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
        """Create or patch the Event on the server.

        A repeated call is safe after a lost answer: an Event that exists is not created a second time.
        """
        namespace = namespace_of(series.ref)
        if series.posted:
            try:
                key = ObjectKey(namespace, series.name)
                await self._client.patch(EVENTS, key, patch_of(series), content_type=PatchType.MERGE.value)
            except NotFound:
                series.posted = False  # the Event has expired, by default after one hour
        if not series.posted:
            # The answer AlreadyExists means that an earlier attempt succeeded but the answer was lost. If the Event's
            # count has risen since that attempt, the Event is in the queue again.
            with suppress(AlreadyExists):
                await self._client.create(EVENTS, namespace, body_of(series, instance=self._instance))
            series.posted = True

    def _drop(self, series: Series, error: Exception) -> None:
        reason = _drop_reason(error)
        self._count_drop(reason)
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
    return isinstance(error, TransportError | ServerError | TooManyRequests) and not isinstance(error, GateClosed)


def _retry_after_s(error: Exception) -> float:
    """Return the delay in seconds that the server requests, or 0. The maximum is the last of `RETRY_DELAYS_S`."""
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


async def announce(recorder: EventRecorder, config: Config, notice: Notice) -> None:
    """Send an Event whose object is the lease of this controller. Wait until it is sent, at most `ANNOUNCED_WITHIN_S`
    seconds.
    """
    lease = ObjectRef(
        api_version="coordination.k8s.io/v1",
        kind="Lease",
        namespace=config.leader_election_namespace,
        name=config.leader_election_id,
        uid="",
    )
    recorder.publish(lease, (notice,))
    await recorder.sent(ANNOUNCED_WITHIN_S)
