"""Cases that call functions of the controller in this process: planning, decoding, memory of the cache, metrics."""

from __future__ import annotations

from benchmarks.case import About, Case, Measure, Round, Setting
from benchmarks.changes import measure_changes
from benchmarks.decoding import measure_decoding
from benchmarks.memory import SUBJECTS, measure_memory
from benchmarks.metrics import FLEETS, measure_metrics
from benchmarks.planning import measure_planning

PLANS = (
    "pool, nothing to do",
    "pool, all outdated",
    "pool, to 0",
    "pool, one more",
    "pool, all starting",
    "pool, first snapshot",
    "set, nothing to do",
    "set, to 0",
    "set, all starting",
    "set, first snapshot",
)
LONGEST_STALL_MS = 50.0


def _planning(setting: Setting) -> Round:
    """Return the longest step of each pass. The event loop does not turn during a step."""
    measured = measure_planning(setting.size)
    return {name: max(steps.values()) for name, steps in measured.items()}


def _memory(setting: Setting) -> Round:
    found = measure_memory(setting.size)
    return {f"{name} {key}": value for name, values in found.items() for key, value in values.items()}


def _decoding(_: Setting) -> Round:
    return measure_decoding()


def _metrics(_: Setting) -> Round:
    measured = measure_metrics()
    scrapes = {f"{key}_{count}": ms for count, page in measured["scrape"].items() for key, ms in page.items()}
    return scrapes | {"pass_us": measured["pass_us"]}


PLANNING = Case(
    name="planning",
    title="Planning of one very large object",
    about=(
        "The longest step of one reconciliation of a set or pool with N members, in CPU time. With 1,000 members or "
        "more, vmherd plans in another thread, and the event loop continues. Before the first snapshot after each new "
        "list, it reads all members in slices, and the event loop continues after each slice."
    ),
    unit_of_size="members",
    sizes=(10_000, 100_000),
    measures=tuple(Measure(name, name, "ms", About.CPU, target=LONGEST_STALL_MS, digits=1) for name in PLANS),
    run=_planning,
    needs_cluster=False,
)
CHANGES = Case(
    name="changes",
    title="One change in a set or pool",
    about="One VMI becomes ready or not ready: the change of the cache, the snapshot, the plan and the status.",
    unit_of_size="members",
    sizes=(10, 1_000, 10_000, 100_000),
    measures=(
        Measure("set", "CPU for one change in a set", "us", About.CPU, digits=0),
        Measure("pool", "CPU for one change in a pool", "us", About.CPU, digits=0),
    ),
    run=lambda setting: measure_changes(setting.size),
    needs_cluster=False,
)
MEMORY = Case(
    name="memory",
    title="Memory of one cached object",
    about="N objects of each kind go through the watch parser into a store with all indexes.",
    unit_of_size="objects",
    sizes=(20_000,),
    measures=tuple(
        measure
        for name in SUBJECTS
        for measure in (
            Measure(f"{name} event_bytes", f"{name}: JSON", "B", About.COUNT, digits=0),
            Measure(f"{name} bytes_kept", f"{name}: memory in the cache", "B", About.MEMORY, digits=0),
            Measure(f"{name} us", f"{name}: decode and store", "us", About.CPU, digits=1),
        )
    ),
    run=_memory,
    needs_cluster=False,
)
DECODING = Case(
    name="decoding",
    title="One VMI event",
    about="A watch event of a running VMI is decoded and stored.",
    unit_of_size="",
    sizes=(1,),
    measures=(
        Measure("event_bytes", "event", "B", About.COUNT, digits=0),
        Measure("decode_us", "decoding", "us", About.CPU, digits=1),
        Measure("store_us", "storing, with indexes", "us", About.CPU, digits=1),
        Measure("bytes_kept", "memory", "B", About.MEMORY, digits=0),
    ),
    run=_decoding,
    needs_cluster=False,
)
METRICS = Case(
    name="metrics",
    title="Metrics",
    about="One scrape of many pools, and the metrics of one reconciliation.",
    unit_of_size="",
    sizes=(1,),
    measures=(
        *(
            measure
            for pools in FLEETS
            for measure in (
                Measure(f"page_ms_{pools}", f"scrape of {pools:,} pools, on the event loop", "ms", About.CPU),
                Measure(f"render_ms_{pools}", f"scrape of {pools:,} pools, on a thread", "ms", About.CPU, digits=0),
            )
        ),
        Measure("pass_us", "metrics of one reconciliation that creates a VM", "us", About.CPU, digits=1),
    ),
    run=_metrics,
    needs_cluster=False,
)
CASES = (PLANNING, CHANGES, MEMORY, DECODING, METRICS)
