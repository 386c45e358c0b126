"""Reads the state of the controller's process: its metrics, its tasks and its memory."""

import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from msgspec import Struct, field
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.soak.trend import Tolerance

INTERVAL_S = 5.0
TIMEOUT_S = 10.0
MIB = 2**20


class Page(NamedTuple):
    """One scrape: the text of /metrics, of /debug/tasks and of /debug/memory."""

    metrics: str
    tasks: str
    memory: str


class Measure(Struct, frozen=True):
    """A quantity that each sample contains. If `counter` is True, the sample contains the rate of the counter per
    second.
    """

    title: str
    unit: str
    tolerance: Tolerance
    read: Callable[["Scrape"], float]
    counter: bool = False


class Scrape:
    """One scrape: the sum, the maximum and the number of series of each metric, the number of tasks, and the memory."""

    def __init__(self, page: Page) -> None:
        self.sums: Counter[str] = Counter()
        self.highest: dict[str, float] = {}
        self.series: Counter[str] = Counter()
        for family in text_string_to_metric_families(page.metrics):
            for sample in family.samples:
                self.sums[sample.name] += sample.value  # type: ignore[assignment]
                self.highest[sample.name] = max(sample.value, self.highest.get(sample.name, 0.0))
                self.series[sample.name] += 1
        self.tasks = sum(1 for line in page.tasks.splitlines() if line and not line.startswith(" "))
        self.memory = {name: int(count) for name, count in re.findall(r"^(.+): (\d+)$", page.memory, re.MULTILINE)}


LOADED = Tolerance(share=0.25, least=5.0)
"""The tolerance for figures that depend on the present load."""

MEASURES: Mapping[str, Measure] = {
    "rss": Measure(
        "Resident memory", "MiB", Tolerance(0.05, 3.0), lambda s: s.sums["process_resident_memory_bytes"] / MIB
    ),
    "blocks": Measure(
        "Blocks of Python's allocator", "", Tolerance(0.05, 5000.0), lambda s: float(s.memory["allocated blocks"])
    ),
    "uncollectable": Measure(
        "Uncollectable objects", "", Tolerance(0.0, 0.5), lambda s: s.sums["python_gc_objects_uncollectable_total"]
    ),
    "collections": Measure(
        "Garbage collections",
        "1/s",
        Tolerance(0.5, 0.5),
        lambda s: s.sums["python_gc_collections_total"],
        counter=True,
    ),
    "tasks": Measure("Tasks of the event loop", "", Tolerance(0.1, 5.0), lambda s: float(s.tasks)),
    "fds": Measure("Open file descriptors", "", Tolerance(0.1, 5.0), lambda s: s.sums["process_open_fds"]),
    "series": Measure("Series of metrics", "", Tolerance(0.1, 20.0), lambda s: float(s.series.total())),
    "cached": Measure("Cached objects", "", LOADED, lambda s: s.sums["vmherd_store_objects"]),
    "depth": Measure("Keys that wait in queues", "", LOADED, lambda s: s.sums["workqueue_depth"]),
    "lag": Measure(
        "Longest loop lag since the last sample",
        "ms",
        Tolerance(0.5, 100.0),
        lambda s: s.highest["vmherd_event_loop_lag_max_seconds"] * 1000,
    ),
    "requests": Measure("Requests", "1/s", LOADED, lambda s: s.sums["rest_client_requests_total"], counter=True),
    "passes": Measure("Passes", "1/s", LOADED, lambda s: s.sums["controller_runtime_reconcile_total"], counter=True),
    "cpu": Measure("CPU", "% of a core", LOADED, lambda s: s.sums["process_cpu_seconds_total"] * 100, counter=True),
}


class Samples(Struct):
    """All samples of a run. `values` has one list for each measure. The list has one value for each time."""

    times_s: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    missed: int = 0

    def add(self, time_s: float, scrape: Scrape, before: tuple[float, Scrape]) -> None:
        """Add one sample. The argument `before` is the time and the data of the previous scrape. Rates are computed
        from both scrapes.
        """
        self.times_s.append(time_s)
        for name, measure in MEASURES.items():
            value = measure.read(scrape)
            if measure.counter:
                value = (value - measure.read(before[1])) / (time_s - before[0])
            self.values[name].append(value)


def read_page(metrics_port: int, health_port: int) -> Page:
    """Scrape the controller. Raise OSError if it does not answer."""

    def text(port: int, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())

    return Page(text(metrics_port, "/metrics"), text(health_port, "/debug/tasks"), text(health_port, "/debug/memory"))


@contextmanager
def sampling(read: Callable[[], Page], samples: Samples, *, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Sample in a thread while the block runs. The times count from the start of the block."""
    stop, started = threading.Event(), time.monotonic()

    def run() -> None:
        before = (0.0, Scrape(read()))
        while not stop.wait(interval_s):
            try:
                page, at_s = read(), time.monotonic() - started
            except (OSError, urllib.error.URLError):
                samples.missed += 1
                continue
            scrape = Scrape(page)
            samples.add(at_s, scrape, before)
            before = (at_s, scrape)

    thread = threading.Thread(target=run, name="sampler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(3 * TIMEOUT_S)
