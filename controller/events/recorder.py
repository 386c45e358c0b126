"""Sends Kubernetes Events to the users of the objects. `publish` only queues them: it never waits and never raises.

The queue of each namespace is sent in order, one request at a time, so one that refuses Events delays no other. If an
Event occurs again in the queue, only its count increases. A metric counts the Events that are dropped:

    queue_full       the queue of the namespace is full
    spam             the token bucket of the object is empty
    namespace_gone   the namespace is being deleted or does not exist
    refused          the server rejected the Event
    unreachable      every attempt failed: no answer, a server error, or an overloaded server
    not_leader       this process does not hold the lease
    failed           any other error
    shutdown         the Event was still in the queue when the process stopped

A dropped Event that occurs again within ten minutes is sent with the full count. One that is published once for each
occasion is published again if no attempt has reached the server.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime

import structlog
from msgspec import Struct

from controller.config.settings import Config
from controller.events.correlator import Correlator, ObjectRef, Occasions, Series, SpamFilter
from controller.events.event import EVENTS, body_of, namespace_of, patch_of
from controller.leaderelection.lease import LEASES
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
    requested_delay_s,
)
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import ObjectClient, PatchType
from informers.workqueue import WorkQueue

log = structlog.get_logger()

QUEUE_SIZE = 1000
SENDERS = 4
RETRY_DELAYS_S = (1.0, 4.0, 16.0)
"""The delays between the attempts to send an Event, in seconds. The sum is longer than a restart of the API server."""

ANNOUNCED_WITHIN_S = 2.0
"""The longest wait for an Event about a second writer. After this time, the process writes nothing, not even Events."""

DROP_REASONS = ("queue_full", "spam", "namespace_gone", "refused", "unreachable", "not_leader", "failed", "shutdown")


def ref_of(resource: AnyResource, meta: ObjectMeta) -> ObjectRef:
    return ObjectRef(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


class _Queue(Struct, eq=False):
    """The Events of one namespace. `sending` is the Event that left the queue last, after this number of `failures`."""

    waiting: dict[Series, None] = {}
    sending: Series | None = None
    failures: int = 0


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
        """`now` returns UTC. `count_drop` gets the reason of a dropped Event. `queue_size` limits each namespace."""
        self._client = client
        self._component = component
        self._now = now
        self._count_drop = count_drop
        self._instance = instance
        self._queue_size = queue_size

        self._correlator = Correlator()
        self._spam_filter = SpamFilter()
        self._occasions = Occasions()

        self._queues: dict[str, _Queue] = {}
        self._work = WorkQueue[str]("events")
        """The namespaces with a queue. A namespace whose last Event failed comes after a delay."""

        self._idle = asyncio.Event()
        self._idle.set()

        self._failing = False
        """True if the last Event could not be sent. Only the first failure in a row is logged as a warning."""

    def __len__(self) -> int:
        return sum(len(queue.waiting) for queue in self._queues.values())

    @property
    def unsent(self) -> int:
        return len(self) + sum(queue.sending is not None for queue in self._queues.values())

    def publish(self, ref: ObjectRef, notices: Iterable[Notice], *, component: str = "") -> list[Notice]:
        """Put an Event for each notice about the object into its queue. Never wait and never raise an exception.

        Return the notices without those that were published before.
        """
        new: list[Notice] = []
        try:
            at = self._now()
            for notice in notices:
                if self._record(ref, notice, component or self._component, at):
                    new.append(notice)
        except Exception:
            # The reconciliation that publishes the notices has finished its writes. An error here must not make the
            # reconciliation fail.
            self._count_drop("failed")
            log.exception("event not recorded", namespace=ref.namespace, name=ref.name)
        return new

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(SENDERS):
                group.create_task(self._send_queues(), name=f"events-{number}")

    async def _send_queues(self) -> None:
        async for namespace in self._work:
            try:
                await self._deliver(namespace, self._queues[namespace])
            finally:
                self._work.done(namespace)

    async def sent(self, timeout_s: float) -> bool:
        """Wait until all Events are sent, and return whether they are. `run` must be running."""
        return await is_set_within(self._idle, timeout_s)

    async def flush(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds until all Events are sent, then drop the others. `run` must be running."""
        if await self.sent(timeout_s):
            return
        log.warning("events not sent in time", waiting=len(self), waited_s=timeout_s)
        for queue in self._queues.values():
            for _ in queue.waiting:
                self._count_drop("shutdown")
            queue.waiting.clear()

    def _record(self, ref: ObjectRef, notice: Notice, component: str, at: datetime) -> bool:
        """Put the Event into its queue. Return False if it was published before."""
        occasion = (ref.uid, notice.reason, notice.once)
        if notice.once and self._occasions.is_reported(occasion):
            return False
        series = self._correlator.record(
            ref, component=component, reason=notice.reason, message=notice.message, warning=notice.warning, at=at
        )
        if self._enqueue(series, at) and notice.once:
            self._occasions.mark_reported(occasion)
            series.occasions.append(occasion)
        return True

    def _enqueue(self, series: Series, at: datetime) -> bool:
        namespace = namespace_of(series.ref)
        queue = self._queues.get(namespace) or _Queue()
        if series in queue.waiting:
            return True
        if len(queue.waiting) >= self._queue_size:
            self._count_drop("queue_full")
            return False
        if not self._spam_filter.admit(series.ref, series.component, at):
            self._count_drop("spam")
            return False
        queue.waiting[series] = None
        if namespace not in self._queues:
            self._queues[namespace] = queue
            self._work.add(namespace)
        self._idle.clear()
        return True

    async def _deliver(self, namespace: str, queue: _Queue) -> None:
        """Try to send the first Event of a queue once, and queue its namespace again. Drop an Event that is refused."""
        if queue.sending is None and queue.waiting:
            queue.sending = next(iter(queue.waiting))
            del queue.waiting[queue.sending]
        if (series := queue.sending) is not None:
            try:
                await self._send(series)
                self._failing = False
            except Exception as error:
                if queue.failures < len(RETRY_DELAYS_S) and _drop_reason(error) == "unreachable":
                    asked_s = requested_delay_s(error, longest_s=RETRY_DELAYS_S[-1])
                    self._work.add_after(namespace, max(RETRY_DELAYS_S[queue.failures], asked_s))
                    queue.failures += 1
                    return
                self._drop(series, error)
            series.occasions.clear()
        queue.sending, queue.failures = None, 0
        if queue.waiting:
            self._work.add(namespace)
            return
        del self._queues[namespace]
        if not self._queues:
            self._idle.set()

    async def _send(self, series: Series) -> None:
        """Create or patch the Event. After a lost answer, a repeated call does not create it a second time."""
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
                await self._client.create(EVENTS, namespace, body_of(series, self._instance))
            series.posted = True

    def _drop(self, series: Series, error: Exception) -> None:
        reason = _drop_reason(error)
        self._count_drop(reason)
        for occasion in series.occasions if reason == "unreachable" else ():
            self._occasions.forget(occasion)
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
    """Send an Event about the lease of this controller. Wait at most `ANNOUNCED_WITHIN_S` seconds for it."""
    lease = ObjectMeta(namespace=config.leader_election_namespace, name=config.leader_election_id)
    recorder.publish(ref_of(LEASES, lease), (notice,))
    await recorder.sent(ANNOUNCED_WITHIN_S)
