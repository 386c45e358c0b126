"""Collects all metrics of the process, and makes the page /metrics.

A report takes about a microsecond: the series for each set of labels is looked up only once. Series with known labels
start at zero. Only a `Page` and the reports of an API client may be used outside of the event loop.
"""

import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, get_args

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from controller.events.recorder import DROP_REASONS
from controller.kinds import KINDS
from controller.metrics.machines import MachineCounts
from controller.metrics.objects import FigureSource, Held, Marked, SetFigures, Tallies, families_of, render
from controller.metrics.series import QUEUE_LABELS, ControllerSeries, ProcessSeries, QueueSeries, ResourceSeries
from controller.runtime.actions import Action, Check, Notice, Outcome, label_of
from informers.http.fairness import FairSlots
from informers.instruments import Instruments
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue

_END = b"# EOF\n"
_OTHER_ESCAPING = re.compile(r"escaping\s*=\s*(dots|values)\b")


@dataclass(frozen=True)
class Page(Collector):
    """A snapshot of all series: the series in the registry, and the series whose values are read at each scrape."""

    registry: CollectorRegistry
    live: Sequence[Metric]
    figures: Sequence[Iterable[SetFigures]]
    tallies: Tallies
    held: Held
    marked: Marked

    def collect(self) -> Iterator[Metric]:
        """Yield all series except the series of single objects. Any thread may call this method."""
        yield from self.registry.collect()
        yield from self.live

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the text in the format of the `Accept` header, and the content type. Call it once, in any thread."""
        # None of our names needs an escape, but the escaping schemes `dots` and `values` would change our names.
        # The scheme `underscores` does not change our names.
        encode, content_type = choose_encoder(_OTHER_ESCAPING.sub("escaping=underscores", accept))
        openmetrics = content_type.startswith("application/openmetrics-text")
        families = families_of(self.figures, self.tallies, self.held, self.marked)
        objects = render(families, openmetrics=openmetrics).encode()
        counted = encode(self)
        if openmetrics:
            return counted.removesuffix(_END) + objects + _END, content_type
        return counted + objects, content_type


def gauge(name: str, help_text: str, values: Mapping[str, float], *labels: str) -> Metric:
    """Return a gauge with one series for each key. All labels of the series have the key as their value."""
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for key, value in values.items():
        family.add_metric([key] * len(labels), value)
    return family


def writes(slots: FairSlots) -> Iterator[Metric]:
    yield GaugeMetricFamily("vmherd_writes_inflight", "Writes that the API server is answering now.", slots.running)
    yield GaugeMetricFamily("vmherd_writes_inflight_limit", "Limit for concurrent writes.", slots.size)
    yield GaugeMetricFamily("vmherd_writes_waiting", "Writes that wait, because of the limit.", slots.waiting)
    yield CounterMetricFamily(
        "vmherd_writes_saturated_seconds",
        "Time during which at least one write waited because of the limit.",
        slots.waited_s(),
    )


RESULTS = ("success", "error", "requeue", "requeue_after")
LIST_REASONS = ("start", "expired", "contradiction", "failure")
WATCH_END_REASONS = ("end", "expired", "silent", "contradiction")
ACTION_OUTCOMES: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(map(label_of, get_args(Action)), ("done", "missing", "rejected", "unknown", "skipped")),
    "create": ("done", "already_there", "rejected", "unknown", "postponed", "skipped"),
    **dict.fromkeys(map(label_of, get_args(Check)), ("done", "rejected", "skipped")),
}
HELD_REASONS: Final = frozenset({"HealingHeld", "RolloutStalled", "ScaleInHeld", "UpdateHeld"})
"""The reasons of notices about writes that must wait. Each plan repeats the notice until the write may start."""


class Metrics(Instruments):
    """All metrics of the process. `clock` must be the clock of the event loop, which the work queues also use."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        version: str = "",
        revision: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # This call changes a setting of the library for the whole process. By default, the library adds a `_created`
        # gauge to each counter, so the page would have twice the size. Common rules and dashboards do not read these
        # gauges.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry
        self._clock = clock

        self._process = ProcessSeries(registry)
        self._resources = ResourceSeries(registry)
        queues, controllers = QueueSeries(registry), ControllerSeries(registry)
        self._queue = cache(lambda name: queues.labels(name, name))
        self._controller = cache(controllers.labels)
        self._resource = cache(self._new_resource)
        self._action = cache(self._process.actions.labels)
        self._request = cache(self._process.requests.labels)
        self._request_seconds = cache(self._process.request_seconds.labels)
        self._machines = MachineCounts(registry)
        self._held: dict[tuple[str, str, str], frozenset[str]] = {}
        self._marked: dict[tuple[str, str, str], Mapping[str, int]] = {}
        self._write_slots: FairSlots | None = None
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self._process.build.labels(version, revision, platform.python_version()).set(1)
        for reason in DROP_REASONS:
            self._process.events_dropped.labels(reason)

        self._queues: list[WorkQueue[Any]] = []
        self._unsettled: dict[str, Callable[[], float]] = {}
        self._figures: list[FigureSource] = []
        self._leases: dict[str, bool] = {}
        self._progress_at: dict[str, float] = {}
        self._worst_lag_s = 0.0
        """The longest delay of a timer of the event loop since the last page was made, in seconds."""

    def show_queue(self, queue: WorkQueue[Any]) -> None:
        """Add the metrics of a work queue to the page, with all counters at zero."""
        self._queues.append(queue)
        self._queue(queue.name)

    def show_unsettled(self, controller: str, oldest_s: Callable[[], float]) -> None:
        """Add a gauge: the seconds for which a controller waits to see its own writes (`Expectations.oldest_s`)."""
        self._unsettled[controller] = oldest_s

    def show_writes(self, slots: FairSlots) -> None:
        self._write_slots = slots

    def show_quarantine(self, quarantined: Callable[[], int]) -> None:
        """Add the number of sets and pools in quarantine to the page. The thread of the page calls `quarantined`."""
        self._process.quarantined.set_function(quarantined)

    def show_replicas(self, source: FigureSource) -> None:
        """Add the objects of the source to each page. A process that waits for the lease leaves them to the leader."""
        self._figures.append(source)

    def page(self) -> Page:
        """Return a snapshot of all series. Call this method on the event loop. Any thread may then render the page."""
        worst_lag_s, self._worst_lag_s = self._worst_lag_s, 0.0
        now, queues = self._clock(), self._queues
        live = (
            # Only these two show a worker that hangs.
            gauge(
                "workqueue_unfinished_work_seconds",
                "Sum of the time that workers have spent on unfinished keys.",
                {queue.name: queue.unfinished_s(now) for queue in queues},
                *QUEUE_LABELS,
            ),
            gauge(
                "workqueue_longest_running_processor_seconds",
                "Time since the start of the longest unfinished reconciliation.",
                {queue.name: queue.longest_s(now) for queue in queues},
                *QUEUE_LABELS,
            ),
            gauge(
                "vmherd_unsettled_seconds",
                "Longest time that an object has waited until the cache shows its previous writes.",
                {controller: oldest_s() for controller, oldest_s in self._unsettled.items()},
                "controller",
            ),
            gauge(
                "vmherd_watch_silence_seconds",
                "Time since data last arrived from a list or watch of the resource, bookmarks included.",
                {resource: now - at for resource, at in self._progress_at.items()},
                "resource",
            ),
            GaugeMetricFamily(
                "vmherd_event_loop_lag_max_seconds",
                "The longest delay of a timer of the event loop since the last scrape.",
                worst_lag_s,
            ),
            *(writes(self._write_slots) if self._write_slots is not None else ()),
        )
        shown = [source() for source in self._figures] if self.is_leading else []
        return Page(self._registry, live, shown, self._machines.tallies(), dict(self._held), dict(self._marked))

    @property
    def is_leading(self) -> bool:
        """True unless this process waits for a lease. Only a leading process reports values of objects."""
        return all(self._leases.values())

    def request_finished(self, *, verb: str, host: str, code: str, seconds: float) -> None:
        self._request(code, verb, host).inc()
        self._request_seconds(verb, host).observe(seconds)

    def request_retried(self, *, verb: str, host: str, code: str) -> None:
        self._process.request_retries.labels(code, verb, host).inc()

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
        self._process.lists.labels(resource, reason).inc()

    def watch_started(self, resource: str) -> None:
        self._resource(resource).watches.inc()

    def watch_ended(self, resource: str, *, reason: str) -> None:
        self._resource(resource)
        self._process.watch_restarts.labels(resource, reason).inc()

    def progress(self, resource: str) -> None:
        self._progress_at[resource] = self._clock()

    def decode_failed(self, resource: str) -> None:
        self._resource(resource).decode_errors.inc()

    def store_size(self, resource: str, objects: int) -> None:
        self._resource(resource).objects.set(objects)

    def handler_failed(self, resource: str) -> None:
        self._resource(resource).handler_errors.inc()

    def workers(self, controller: str, *, most: int) -> None:
        """The counters start at zero."""
        self._controller(controller).most_workers.set(most)
        for result in RESULTS:
            self._process.results.labels(controller, result)
        for action, outcomes in ACTION_OUTCOMES.items():
            for outcome in outcomes:
                self._action(controller, action, outcome)
        self._machines.start(controller)
        for kind in KINDS:
            if kind.name == controller:
                self._process.ready.labels(kind.kind)

    def worker_busy(self, controller: str, *, change: int) -> None:
        """Change the number of busy workers: +1 when a worker takes a key, and -1 when it has finished."""
        self._controller(controller).active_workers.inc(change)

    def reconciled(self, controller: str, *, result: str, seconds: float) -> None:
        self._process.results.labels(controller, result).inc()
        self._controller(controller).seconds.observe(seconds)
        if result == "error":
            self._controller(controller).errors.inc()

    def panicked(self, controller: str) -> None:
        """Count a reconciliation that raised an unexpected exception. `reconciled` counts this reconciliation too."""
        self._controller(controller).panics.inc()

    def acted(self, controller: str, *, action: str, outcome: str) -> None:
        """Count a planned write. `action` and `outcome` are class names of runtime/actions.py in snake case."""
        self._action(controller, action, outcome).inc()

    def carried_out(self, controller: str, owner_kind: str, owner: ObjectKey, outcomes: Iterable[Outcome]) -> None:
        """Count the create, delete and update requests for VMs and VMIs that a reconciliation of the owner has sent."""
        self._machines.count(controller, owner_kind, owner, outcomes)

    def owner_gone(self, owner_kind: str, owner: ObjectKey) -> None:
        self._machines.forget(owner_kind, owner)
        self._held.pop((owner_kind, *owner), None)
        self._marked.pop((owner_kind, *owner), None)

    def planned(self, owner_kind: str, owner: ObjectKey, notices: Iterable[Notice], marked: Mapping[str, int]) -> None:
        """Record which writes the newest plan of a set or pool holds back, and the numbers of its marked members.
        `notices` are the notices of the plan.
        """
        self._marked[owner_kind, *owner] = marked
        self._held.pop((owner_kind, *owner), None)
        if reasons := HELD_REASONS.intersection(notice.reason for notice in notices):
            self._held[owner_kind, *owner] = reasons

    def became_ready(self, owner_kind: str, after_s: float) -> None:
        """Record the first readiness of a VM or VMI. A process that waits for the lease leaves it to the leader."""
        if self.is_leading:
            self._process.ready.labels(owner_kind).observe(after_s)

    def stale_pass(self, controller: str) -> None:
        """Count a reconciliation that wrote nothing, because the cache did not show the previous writes yet."""
        self._controller(controller).stale_skips.inc()

    def gave_up(self, controller: str) -> None:
        """Count a reconciliation that no longer waited for the cache to show all earlier writes."""
        self._controller(controller).gave_up.inc()

    def event_dropped(self, reason: str) -> None:
        self._process.events_dropped.labels(reason).inc()

    def leading(self, lease: str, master: bool) -> None:
        """Record whether this process holds the lease. Call this method at the start and after each change."""
        self._process.leader.labels(lease).set(int(master))
        self._leases[lease] = master

    def second_writer(self, found: bool) -> None:
        self._process.second_writer.set(int(found))

    def loop_lagged(self, seconds: float) -> None:
        self._process.loop_lag.observe(seconds)
        self._worst_lag_s = max(self._worst_lag_s, seconds)

    def _new_resource(self, name: str) -> ResourceSeries:
        for reason in LIST_REASONS:
            self._process.lists.labels(name, reason)
        for reason in WATCH_END_REASONS:
            self._process.watch_restarts.labels(name, reason)
        return self._resources.labels(name)
