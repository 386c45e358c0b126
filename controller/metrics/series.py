"""The series that are counted as things happen: name, meaning, labels and buckets of each.

Names, labels and buckets without our prefix are those of client-go and controller-runtime, where they exist, so that
dashboards and alerts made for Go controllers fit. `name` and `controller` of a work queue are the same twice:
controller-runtime has both labels, dashboards of client-go know only `name`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
QUEUE_BUCKETS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0),
    *(15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)


class ClientSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "rest_client_requests_total",
            "HTTP requests to the API server, by status code, method and host.",
            ("code", "method", "host"),
            registry=registry,
        )
        self.seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Time until the API server's answer, by verb and host.",
            ("verb", "host"),
            registry=registry,
            buckets=REQUEST_BUCKETS,
        )


class QueueSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("name", "controller")
        self.depth = Gauge("workqueue_depth", "Keys that wait for a worker.", labels, registry=registry)
        self.adds = Counter("workqueue_adds_total", "Keys added to the queue.", labels, registry=registry)
        self.retries = Counter(
            "workqueue_retries_total", "Keys added again after a failure.", labels, registry=registry
        )
        self.waited = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys wait in the queue before a worker takes them.",
            labels,
            registry=registry,
            buckets=QUEUE_BUCKETS,
        )
        self.worked = Histogram(
            "workqueue_work_duration_seconds",
            "How long workers take for a key.",
            labels,
            registry=registry,
            buckets=QUEUE_BUCKETS,
        )


class ReconcileSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("controller",)

        def counter(name: str, meaning: str) -> Counter:
            return Counter(name, meaning, labels, registry=registry)

        self.results = Counter(
            "controller_runtime_reconcile_total", "Passes, by result.", ("controller", "result"), registry=registry
        )
        self.errors = counter("controller_runtime_reconcile_errors_total", "Passes that failed.")
        self.panics = counter(
            "controller_runtime_reconcile_panics_total", "Passes that ended in an exception nobody foresaw."
        )
        self.seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Time that a pass takes.",
            labels,
            registry=registry,
            buckets=RECONCILE_BUCKETS,
        )
        self.most_workers = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers of the controller.", labels, registry=registry
        )
        self.active_workers = Gauge(
            "controller_runtime_active_workers", "Workers that have a key in hand.", labels, registry=registry
        )
        self.actions = Counter(
            "vmherd_actions_total",
            "Planned writes of children, by what became of them.",
            ("controller", "action", "outcome"),
            registry=registry,
        )
        self.stale_skips = counter(
            "vmherd_stale_sync_skips_total", "Passes held back while the cache did not show the object's own writes."
        )
        self.gave_up = counter(
            "vmherd_unsettled_timeouts_total", "Times that work went on although own writes never showed in the cache."
        )


class InformerSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("resource",)
        reasons = ("resource", "reason")
        self.objects = Gauge("vmherd_store_objects", "Objects in the cache.", labels, registry=registry)
        self.lists = Counter(
            "vmherd_lists_total", "Complete lists, by what made them needed.", reasons, registry=registry
        )
        self.watches = Counter("vmherd_watches_total", "Watches started.", labels, registry=registry)
        self.watch_restarts = Counter(
            "vmherd_watch_restarts_total",
            'Watches that ended, by what ended them; "end" is the server\'s regular timeout.',
            reasons,
            registry=registry,
        )
        self.decode_errors = Counter(
            "vmherd_decode_errors_total", "Objects left out because they did not decode.", labels, registry=registry
        )
        self.handler_errors = Counter(
            "vmherd_handler_errors_total", "Changes that a handler failed on.", labels, registry=registry
        )


class ProcessSeries:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.leader = Gauge(
            "leader_election_master_status", "1 while this process holds the lease.", ("name",), registry=registry
        )
        self.events_dropped = Counter(
            "vmherd_events_dropped_total", "Event requests not sent, by reason.", ("reason",), registry=registry
        )
        self.loop_lag = Histogram(
            "vmherd_event_loop_lag_seconds",
            "How much too late timers of the event loop come.",
            registry=registry,
            buckets=LAG_BUCKETS,
        )
        self.build = Gauge(
            "vmherd_build_info",
            "Always 1; what is running is in the labels.",
            ("version", "revision", "python"),
            registry=registry,
        )
