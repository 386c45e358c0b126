"""What only the moment of a scrape can tell: ages, and figures of the objects that exist now.

Nothing here is counted along the way, so nothing has to be cleaned up: a series goes when its object goes.

A `Page` is made on the event loop, where all state is still, and takes a moment to make; it is rendered on another
thread, where thousands of lines hold up nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from controller.metrics.objects import FigureSource, SetFigures, Tallies, families_of, render

__all__ = ["FigureSource", "Page", "QueueAges", "SetFigures", "gauge", "queue_ages"]

_END = b"# EOF\n"
_OTHER_ESCAPING = re.compile(r"escaping\s*=\s*(dots|values)\b")


class QueueAges(Protocol):
    """What a work queue knows of the time its keys take."""

    @property
    def name(self) -> str: ...

    def unfinished_s(self, now: float) -> float: ...

    def longest_s(self, now: float) -> float: ...


class Page(Collector):
    """Every series at one moment: whatever the registry holds, and what is taken at the time of the scrape."""

    def __init__(
        self,
        registry: CollectorRegistry,
        live: Sequence[Metric],
        figures: Sequence[Iterable[SetFigures]],
        tallies: Tallies,
    ) -> None:
        self._registry = registry
        self._live = live
        self._figures = figures
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """All series but those of single objects. On any thread."""
        yield from self._registry.collect()
        yield from self._live

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page as whoever sends this `Accept` header wants it, and its content type. Once, on any thread."""
        # Of the ways to escape names that a format does not take, two would change ours as well, which need none.
        encode, content_type = choose_encoder(_OTHER_ESCAPING.sub("escaping=underscores", accept))
        openmetrics = content_type.startswith("application/openmetrics-text")
        objects = render(families_of(self._figures, self._tallies), openmetrics=openmetrics).encode()
        counted = encode(self)
        if openmetrics:
            return counted.removesuffix(_END) + objects + _END, content_type
        return counted + objects, content_type


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
