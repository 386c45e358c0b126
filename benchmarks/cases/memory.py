"""The memory of one cached object, with its key and its entries in the indexes, and the CPU time to store it."""

import gc
import time
import tracemalloc
from typing import Any

from benchmarks.case import About, Case, Measure, Round, Setting
from benchmarks.fleet import Shape, Size, shapes
from controller.assembly import Cache, merged_caches
from controller.kinds import KINDS
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from informers.resource import Resource
from informers.store import Store
from informers.watch.parser import Applied, WatchParser

SUBJECTS: dict[str, Resource[Any]] = {
    "VMI of a set": VMIS,
    "VMI of a VM": VMIS,
    "VM of a pool": VMS,
    "ControllerRevision of a set": CONTROLLER_REVISIONS,
}
GROUP = 20


def measure(setting: Setting) -> Round:
    """Measure `setting.size` objects of each kind."""
    caches = merged_caches(kind.module("wiring").CACHES for kind in KINDS)
    groups = -(-setting.size // GROUP)
    made = shapes(Size(groups, GROUP, groups, GROUP))
    values: Round = {}
    for name, resource in SUBJECTS.items():
        found = _measured(resource, caches[resource], made[name], setting.size)
        values |= {f"{name} {key}": value for key, value in found.items()}
    return values


def _measured(resource: Resource[Any], cache: Cache, shape: Shape, objects: int) -> Round:
    lines = [b'{"type":"ADDED","object":' + shape.render(number) + b"}\n" for number in range(objects)]
    started = time.process_time()
    _fill(resource, cache, lines)
    seconds = time.process_time() - started
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    store = _fill(resource, cache, lines)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(store) == objects
    return {
        "event_bytes": sum(map(len, lines)) / objects,
        "bytes_kept": held / objects,
        "us": seconds / objects * 1e6,
    }


def _fill(resource: Resource[Any], cache: Cache, lines: list[bytes]) -> Store[Any]:
    """Return a store with the objects of these watch events, as the informer would fill it."""
    store: Store[Any] = Store(indexes=cache.indexes)
    parser = WatchParser(resource)
    for line in lines:
        for event in parser.feed(line):
            assert isinstance(event, Applied), event
            obj = event.object if cache.transform is None else cache.transform(event.object)
            if obj is not None:
                store.apply(obj)
    return store


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
    run=measure,
)
