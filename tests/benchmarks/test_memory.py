"""The memory of one cached object, with its key and its entries in the indexes."""

import gc
import subprocess
import sys
import tracemalloc
from typing import Any, Final

import pytest

from benchmarks.fleet import Size, shapes
from controller.assembly import merged_caches
from controller.kinds import KINDS
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from informers.resource import Resource
from informers.store import Store
from informers.watch.parser import Applied, WatchParser

COUNT, GROUP = 1_000, 20


MOST: Final = {"VMI of a set": 3000, "VMI of a VM": 3000, "VM of a pool": 2000, "ControllerRevision of a set": 2000}
RESOURCES: Final[dict[str, Resource[Any]]] = {
    **{"VMI of a set": VMIS, "VMI of a VM": VMIS, "VM of a pool": VMS},
    "ControllerRevision of a set": CONTROLLER_REVISIONS,
}


@pytest.mark.parametrize("name", MOST)
def test_a_cached_object_needs_at_most_so_many_bytes(name: str) -> None:
    """A new process measures, because the memory of other tests would count."""
    command = [sys.executable, "-m", "tests.benchmarks.test_memory", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert 0 < float(done.stdout) < MOST[name]


def bytes_of(name: str) -> float:
    resource = RESOURCES[name]
    cache = merged_caches(kind.module("wiring").CACHES for kind in KINDS)[resource]
    shape = shapes(Size(COUNT // GROUP, GROUP, COUNT // GROUP, GROUP))[name]
    lines = [b'{"type":"ADDED","object":' + shape.render(number) + b"}\n" for number in range(COUNT)]

    def filled() -> Store[Any]:
        store: Store[Any] = Store(indexes=cache.indexes)
        parser = WatchParser(resource)
        for line in lines:
            for event in parser.feed(line):
                assert isinstance(event, Applied), event
                obj = event.object if cache.transform is None else cache.transform(event.object)
                if obj is not None:
                    store.apply(obj)
        return store

    interned = filled()  # so that the table of interned texts does not grow in the measurement
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    store = filled()
    gc.collect()
    kept = (tracemalloc.get_traced_memory()[0] - before) / COUNT
    assert len(store) == len(interned) == COUNT
    return kept


if __name__ == "__main__":
    print(bytes_of(sys.argv[1]))
