"""What the controller counts about itself, and the page that shows it.

`Metrics` implements the protocols through which each part reports: API client, informers, work queues, workers,
executor, event recorder, lease, event loop. Reporting is synchronous and costs about a microsecond: on the busy paths
the series for a set of labels is looked up once. What can be known beforehand starts at zero, so that the absence of
errors is a line in a graph, and not a graph without a line.

Everything is called on the event loop. Only the `Page` may go to another thread.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily

from controller.events.recorder import DROP_REASONS
from controller.metrics.machines import MachineCounts
from controller.metrics.page import FigureSource, Page, QueueAges, SetFigures, gauge, queue_ages
from controller.metrics.series import ClientSeries, InformerSeries, ProcessSeries, QueueSeries, ReconcileSeries
from controller.runtime.plan import Outcome
from informers.meta import ObjectKey

__all__ = ["FigureSource", "Metrics", "Page", "SetFigures"]

RESULTS = ("success", "error", "requeue", "requeue_after")
LIST_REASONS = ("start", "expired", "failure")
WATCH_END_REASONS = ("end", "expired", "silent")

ACTION_OUTCOMES = {
    "create": ("done", "already_there", "rejected", "unknown", "postponed", "skipped"),
    "delete": ("done", "missing", "rejected", "unknown", "skipped"),
    "patch": ("done", "missing", "rejected", "unknown", "skipped"),
    "confirm": ("done", "rejected", "skipped"),
    "remove_owner_reference": ("done", "missing", "rejected", "unknown", "skipped"),
    "three_way_merge": ("done", "missing", "rejected", "unknown", "skipped"),
}


class _Queue(NamedTuple):
    depth: Gauge
    adds: Counter
    retries: Counter
    waited: Histogram
    worked: Histogram


class _Resource(NamedTuple):
    objects: Gauge
    watches: Counter
    decode_errors: Counter
    handler_errors: Counter


class Metrics:
    """See the module's contract. `clock` must be the one of the work queues that are shown: the event loop's."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        version: str = "",
        revision: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # The library's switch for the whole process. A `_created` gauge beside each counter would double the page,
        # and no rule or dashboard of this field reads it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry
        self._clock = clock

        self._client_series = ClientSeries(registry)
        self._queue_series = QueueSeries(registry)
        self._reconcile_series = ReconcileSeries(registry)
        self._informer_series = InformerSeries(registry)
        self._process_series = ProcessSeries(registry)
        self._machines = MachineCounts(registry)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self._process_series.build.labels(version, revision, platform.python_version()).set(1)
        for reason in DROP_REASONS:
            self._process_series.events_dropped.labels(reason)

        self._requests: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._queues: dict[str, _Queue] = {}
        self._resources: dict[str, _Resource] = {}
        self._actions: dict[tuple[str, str, str], Counter] = {}

        self._queue_ages: list[QueueAges] = []
        self._unsettled: dict[str, Callable[[], float]] = {}
        self._figures: list[FigureSource] = []
        self._leases: dict[str, bool] = {}
        """Whether this process holds them, as far as it wants any."""
        self._progress_at: dict[str, float] = {}
        """When each resource's list or watch last brought anything."""
        self._worst_lag_s = 0.0
        """Since the last page."""

    def show_queue(self, queue: QueueAges) -> None:
        """Show a work queue, from zero on. What it counts, it reports by itself."""
        self._queue_ages.append(queue)
        self._queue(queue.name)

    def show_unsettled(self, controller: str, oldest_s: Callable[[], float]) -> None:
        """Show for how long a controller's object has waited for its own writes: `Expectations.oldest_s`."""
        self._unsettled[controller] = oldest_s

    def show_replicas(self, source: FigureSource) -> None:
        """Show the state of each object that the source names at the time, and of no other; but not on a standby,
        whose leader shows the same.
        """
        self._figures.append(source)

    def page(self) -> Page:
        """Take all series as they are now. Call it on the loop; render what it returns anywhere, once."""
        worst_lag_s, self._worst_lag_s = self._worst_lag_s, 0.0
        live = (
            *queue_ages(self._queue_ages, self._clock()),
            gauge(
                "vmherd_unsettled_seconds",
                "How long the object that waits longest for the cache to show its own writes has waited.",
                "controller",
                {controller: oldest_s() for controller, oldest_s in self._unsettled.items()},
            ),
            gauge(
                "vmherd_watch_silence_seconds",
                "Time since a list or watch of the resource last brought anything, bookmarks included.",
                "resource",
                self.silence_s(),
            ),
            GaugeMetricFamily(
                "vmherd_event_loop_lag_max_seconds",
                "The longest delay of a timer of the event loop since the last scrape.",
                worst_lag_s,
            ),
        )
        shown = [source() for source in self._figures] if all(self._leases.values()) else []
        return Page(self._registry, live, shown, self._machines.tallies())

    def silence_s(self) -> dict[str, float]:
        """For how long each resource's list or watch has brought nothing, not even a bookmark."""
        now = self._clock()
        return {resource: now - at for resource, at in self._progress_at.items()}

    def request_finished(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        series = self._requests.get((verb, host, code))
        if series is None:
            counted = self._client_series
            series = (counted.requests.labels(code, verb, host), counted.seconds.labels(verb, host))
            self._requests[verb, host, code] = series
        series[0].inc()
        series[1].observe(seconds)

    def depth(self, queue: str, items: int) -> None:
        self._queue(queue).depth.set(items)

    def added(self, queue: str) -> None:
        self._queue(queue).adds.inc()

    def retried(self, queue: str) -> None:
        self._queue(queue).retries.inc()

    def started(self, queue: str, *, waited_s: float) -> None:
        self._queue(queue).waited.observe(waited_s)

    def finished(self, queue: str, *, worked_s: float) -> None:
        self._queue(queue).worked.observe(worked_s)

    def listed(self, resource: str, *, reason: str) -> None:
        self._resource(resource)
        self._informer_series.lists.labels(resource, reason).inc()

    def watch_started(self, resource: str) -> None:
        self._resource(resource).watches.inc()

    def watch_ended(self, resource: str, *, reason: str) -> None:
        self._resource(resource)
        self._informer_series.watch_restarts.labels(resource, reason).inc()

    def progress(self, resource: str) -> None:
        self._progress_at[resource] = self._clock()

    def decode_failed(self, resource: str) -> None:
        self._resource(resource).decode_errors.inc()

    def store_size(self, resource: str, objects: int) -> None:
        self._resource(resource).objects.set(objects)

    def handler_failed(self, resource: str) -> None:
        self._resource(resource).handler_errors.inc()

    def workers(self, controller: str, *, most: int) -> None:
        """A controller starts, with so many workers."""
        series = self._reconcile_series
        series.most_workers.labels(controller).set(most)
        series.active_workers.labels(controller).set(0)
        series.seconds.labels(controller)
        for counter in (
            series.errors,
            series.panics,
            series.stale_skips,
            series.gave_up,
        ):
            counter.labels(controller)
        for result in RESULTS:
            series.results.labels(controller, result)
        for action, outcomes in ACTION_OUTCOMES.items():
            for outcome in outcomes:
                series.actions.labels(controller, action, outcome)
        self._machines.start(controller)

    def worker_busy(self, controller: str, *, change: int) -> None:
        """A worker took a key (+1), or is done with it (-1)."""
        self._reconcile_series.active_workers.labels(controller).inc(change)

    def reconciled(self, controller: str, *, result: str, seconds: float) -> None:
        """A pass ended with one of RESULTS."""
        series = self._reconcile_series
        series.results.labels(controller, result).inc()
        series.seconds.labels(controller).observe(seconds)
        if result == "error":
            series.errors.labels(controller).inc()

    def panicked(self, controller: str) -> None:
        """A pass raised what nobody foresaw. Counted beside its result."""
        self._reconcile_series.panics.labels(controller).inc()

    def acted(self, controller: str, *, action: str, outcome: str) -> None:
        """A planned write had an outcome; both go by their class names in plan.py."""
        series = self._actions.get((controller, action, outcome))
        if series is None:
            series = self._reconcile_series.actions.labels(controller, action, outcome)
            self._actions[controller, action, outcome] = series
        series.inc()

    def carried_out(self, controller: str, owner_kind: str, owner: ObjectKey, outcomes: Iterable[Outcome]) -> None:
        """A plan for this owner had these outcomes: what it means for VMs."""
        self._machines.count(controller, owner_kind, owner, outcomes)

    def owner_gone(self, owner_kind: str, owner: ObjectKey) -> None:
        """Nothing more is to be told of this object."""
        self._machines.forget(owner_kind, owner)

    def stale_pass(self, controller: str) -> None:
        """A pass held back, because the cache does not show the object's own writes yet."""
        self._reconcile_series.stale_skips.labels(controller).inc()

    def gave_up(self, controller: str) -> None:
        """Own writes did not show in the cache for so long that work went on without them."""
        self._reconcile_series.gave_up.labels(controller).inc()

    def event_dropped(self, reason: str) -> None:
        self._process_series.events_dropped.labels(reason).inc()

    def leading(self, lease: str, *, master: bool) -> None:
        """Whether this process holds the lease. To be said at the start, and at each change."""
        self._process_series.leader.labels(lease).set(int(master))
        self._leases[lease] = master

    def loop_lagged(self, seconds: float) -> None:
        """A timer of the event loop came so much too late."""
        self._process_series.loop_lag.observe(seconds)
        self._worst_lag_s = max(self._worst_lag_s, seconds)

    def _queue(self, name: str) -> _Queue:
        queue = self._queues.get(name)
        if queue is None:
            series = self._queue_series
            queue = _Queue(
                depth=series.depth.labels(name, name),
                adds=series.adds.labels(name, name),
                retries=series.retries.labels(name, name),
                waited=series.waited.labels(name, name),
                worked=series.worked.labels(name, name),
            )
            self._queues[name] = queue
        return queue

    def _resource(self, name: str) -> _Resource:
        resource = self._resources.get(name)
        if resource is None:
            series = self._informer_series
            resource = _Resource(
                objects=series.objects.labels(name),
                watches=series.watches.labels(name),
                decode_errors=series.decode_errors.labels(name),
                handler_errors=series.handler_errors.labels(name),
            )
            self._resources[name] = resource
            for reason in LIST_REASONS:
                series.lists.labels(name, reason)
            for reason in WATCH_END_REASONS:
                series.watch_restarts.labels(name, reason)
        return resource
