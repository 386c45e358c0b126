"""The names, help texts, labels and buckets of the metrics that the program updates at each report.

Metrics without the prefix `vmherd_` are those of client-go and controller-runtime. The labels `name` and `controller`
of a work queue have the same value, because dashboards for client-go read only `name`.
"""

from copy import copy
from functools import partial
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
QUEUE_BUCKETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0),
    *(15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)
READY_BUCKETS = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0),
    *(60.0, 90.0, 120.0, 180.0, 300.0, 450.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0),
)
"""The limits of the buckets in seconds: a container disk boots in seconds, an imported disk in half an hour."""


class Series:
    def labels(self, *values: str) -> Self:
        """Return the series with these values of the labels. All of them start at zero."""
        child = copy(self)
        for name, series in vars(self).items():
            setattr(child, name, series.labels(*values))
        return child


QUEUE_LABELS = ("name", "controller")


class QueueSeries(Series):
    def __init__(self, registry: CollectorRegistry) -> None:
        def times(name: str, meaning: str) -> Histogram:
            return Histogram(name, meaning, QUEUE_LABELS, registry=registry, buckets=QUEUE_BUCKETS)

        self.depth = Gauge("workqueue_depth", "Objects that wait for a worker.", QUEUE_LABELS, registry=registry)
        self.adds = Counter(
            "workqueue_adds_total", "Objects that were added to the queue.", QUEUE_LABELS, registry=registry
        )
        self.retries = Counter(
            "workqueue_retries_total",
            "Objects that were added to the queue because a reconciliation failed.",
            QUEUE_LABELS,
            registry=registry,
        )
        self.waited = times("workqueue_queue_duration_seconds", "Time that an object waits for a worker.")
        self.worked = times("workqueue_work_duration_seconds", "Time that a worker needs for an object.")


class ControllerSeries(Series):
    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, labelnames=("controller",), registry=registry)
        gauge = partial(Gauge, labelnames=("controller",), registry=registry)
        self.errors = counter(
            "controller_runtime_reconcile_errors_total", "Reconciliations that failed; they are retried with backoff."
        )
        self.panics = counter(
            "controller_runtime_reconcile_panics_total", "Reconciliations that ended with an unexpected exception."
        )
        self.seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconciliation.",
            ("controller",),
            registry=registry,
            buckets=RECONCILE_BUCKETS,
        )
        self.most_workers = gauge(
            "controller_runtime_max_concurrent_reconciles", "Number of workers of the controller."
        )
        self.active_workers = gauge("controller_runtime_active_workers", "Workers that are processing an object.")
        self.stale_skips = counter(
            "vmherd_stale_sync_skips_total",
            "Reconciliations without writes, because the cache did not show the previous writes for the object yet.",
        )
        self.gave_up = counter(
            "vmherd_unsettled_timeouts_total",
            "Reconciliations that continued after the cache had not shown a write for five minutes.",
        )


class ResourceSeries(Series):
    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, labelnames=("resource",), registry=registry)
        self.objects = Gauge("vmherd_store_objects", "Objects in the cache.", ("resource",), registry=registry)
        self.watches = counter("vmherd_watches_total", "Watches that were started.")
        self.decode_errors = counter(
            "vmherd_decode_errors_total", "Versions of objects with a field that could not be decoded."
        )
        self.handler_errors = counter("vmherd_handler_errors_total", "Changes for which a handler raised an exception.")


class ProcessSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.requests = counter(
            "rest_client_requests_total",
            "Requests to the API server, by HTTP code, method and host.",
            ("code", "method", "host"),
        )
        self.request_seconds = histogram(
            "rest_client_request_duration_seconds",
            "Duration of a request to the API server, by verb and host.",
            ("verb", "host"),
            buckets=REQUEST_BUCKETS,
        )
        self.request_retries = counter(
            "rest_client_request_retries_total",
            "Requests that were sent again after an answer 429 or 503, by HTTP code, verb and host.",
            ("code", "verb", "host"),
        )
        self.results = counter(
            "controller_runtime_reconcile_total", "Reconciliations of objects, by result.", ("controller", "result")
        )
        self.actions = counter(
            "vmherd_actions_total", "Planned writes, by action and outcome.", ("controller", "action", "outcome")
        )
        self.ready = histogram(
            "vmherd_create_to_ready_seconds",
            "Time from the creation of a VM or VMI until it is ready for the first time, by the kind of its owner.",
            ("kind",),
            buckets=READY_BUCKETS,
        )
        self.lists = counter("vmherd_lists_total", "Complete lists, by reason.", ("resource", "reason"))
        self.watch_restarts = counter(
            "vmherd_watch_restarts_total",
            'Watches that ended, by reason; "end" is the server\'s regular timeout.',
            ("resource", "reason"),
        )
        self.leader = gauge(
            "leader_election_master_status", "1 in the process that holds the lease, 0 in other processes.", ("name",)
        )
        self.second_writer = gauge(
            "vmherd_second_writer", "1 while another controller works on the same objects; the lease has its name."
        )
        self.quarantined = gauge(
            "vmherd_quarantined_objects",
            "Sets and pools that wait longer, because a reconciliation kept the event loop busy for over a second.",
        )
        self.events_dropped = counter(
            "vmherd_events_dropped_total", "Kubernetes Events that were not sent, by reason.", ("reason",)
        )
        self.loop_lag = histogram(
            "vmherd_event_loop_lag_seconds", "Delay of timers of the event loop.", buckets=LAG_BUCKETS
        )
        self.build = gauge(
            "vmherd_build_info",
            "Always 1; the labels have the version of the program and of Python.",
            ("version", "revision", "python"),
        )
