"""What only the moment of a scrape can tell: ages, and figures of the objects that exist now.

Nothing here is counted along the way, so nothing has to be cleaned up: a series goes when its object goes.

A `Page` is made on the event loop, where all state is still, and takes a moment to make; it is rendered on another
thread, where thousands of lines hold up nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample


class SetFigures(Struct, frozen=True, gc=False):
    """One replica set or pool, in figures."""

    kind: str
    namespace: str
    name: str
    desired: int
    current: int
    ready: int
    updated: int


FigureSource: TypeAlias = Callable[[], Iterable[SetFigures]]
"""Called on the loop, and must be quick: what it returns is iterated on another thread, so it must not look at
anything that changes. A generator over a store's `values()` is right."""

REPLICA_GAUGES: Mapping[str, str] = {
    "desired": "Replicas that the object's spec asks for.",
    "current": "Replicas that exist, as the object's status says.",
    "ready": "Replicas that are ready, as the object's status says.",
    "updated": "Replicas of the current template, as the object's status says.",
}


class QueueAges(Protocol):
    """What a work queue knows of the time its keys take."""

    @property
    def name(self) -> str: ...

    def unfinished_s(self, now: float) -> float: ...

    def longest_s(self, now: float) -> float: ...


class Page(Collector):
    """Every series at one moment: whatever the registry holds, and what is taken at the time of the scrape."""

    def __init__(
        self, registry: CollectorRegistry, live: Sequence[Metric], figures: Sequence[Iterable[SetFigures]]
    ) -> None:
        self._registry = registry
        self._live = live
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Give all series, once. On any thread."""
        yield from self._registry.collect()
        yield from self._live
        if self._figures:
            yield from _replica_gauges(self._figures)


def gauge(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A gauge with one label."""
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def queue_ages(queues: Iterable[QueueAges], now: float) -> Iterator[Metric]:
    """How long keys have been worked on that are not done yet. A worker that hangs shows here and nowhere else."""
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds",
        "How many seconds of work are in progress and not yet observed by work_duration, summed over all keys.",
        labels=["name", "controller"],
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds",
        "How many seconds the longest running worker has been running.",
        labels=["name", "controller"],
    )
    for queue in queues:
        unfinished.add_metric([queue.name, queue.name], queue.unfinished_s(now))
        longest.add_metric([queue.name, queue.name], queue.longest_s(now))
    yield unfinished
    yield longest


def _replica_gauges(sources: Sequence[Iterable[SetFigures]]) -> Iterator[Metric]:
    # The four gauges share the labels of an object: at 10,000 objects that is most of the memory.
    rows = [
        ({"kind": figures.kind, "namespace": figures.namespace, "name": figures.name}, figures)
        for source in sources
        for figures in source
    ]
    for field, help_text in REPLICA_GAUGES.items():
        name = f"vmherd_replicas_{field}"
        family = Metric(name, help_text, "gauge")
        family.samples = [Sample(name, labels, getattr(figures, field)) for labels, figures in rows]
        yield family
