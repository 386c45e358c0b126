"""Makes the page /metrics. The values of existing objects and of unfinished work are read at each scrape.

A `Page` is created on the event loop, so that no other code changes the program's state. Another thread renders it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from controller.metrics.objects import FigureSource, Held, SetFigures, Tallies, families_of, render
from informers.http.fairness import FairSlots
from informers.workqueue import WorkQueue

__all__ = ["FigureSource", "Page", "SetFigures", "gauge", "queue_ages", "writes"]

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
        objects = render(families_of(self.figures, self.tallies, self.held), openmetrics=openmetrics).encode()
        counted = encode(self)
        if openmetrics:
            return counted.removesuffix(_END) + objects + _END, content_type
        return counted + objects, content_type


def gauge(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with one label. `values` maps each value of the label to the value of the gauge."""
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def queue_ages(queues: Iterable[WorkQueue[Any]], now: float) -> Iterator[Metric]:
    """Yield two gauges of the seconds that workers have spent on unfinished keys: only these show a hanging worker."""
    labels = ["name", "controller"]
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds",
        "Sum of the time that workers have spent on unfinished keys.",
        labels=labels,
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds",
        "Time since the start of the longest unfinished reconciliation.",
        labels=labels,
    )
    for queue in queues:
        unfinished.add_metric([queue.name, queue.name], queue.unfinished_s(now))
        longest.add_metric([queue.name, queue.name], queue.longest_s(now))
    yield unfinished
    yield longest


def writes(slots: FairSlots) -> Iterator[Metric]:
    yield GaugeMetricFamily("vmherd_writes_inflight", "Writes that the API server is answering now.", slots.running)
    yield GaugeMetricFamily("vmherd_writes_inflight_limit", "Limit for concurrent writes.", slots.size)
    yield GaugeMetricFamily("vmherd_writes_waiting", "Writes that wait, because of the limit.", slots.waiting)
    yield CounterMetricFamily(
        "vmherd_writes_saturated_seconds",
        "Time during which at least one write waited because of the limit.",
        slots.waited_s(),
    )
