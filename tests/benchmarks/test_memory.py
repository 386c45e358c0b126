"""The memory of one cached object, with its key and its entries in the indexes."""

import gc
import tracemalloc
from typing import Any

import pytest

from benchmarks.fleet import Size, shapes
from controller.assembly import merged_caches
from controller.kinds import KINDS
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from informers.resource import Resource
from informers.store import Store
from informers.watch.parser import Applied, WatchParser

COUNT, GROUP = 1_000, 20


@pytest.mark.parametrize(
    ("name", "resource", "most"),
    [
        ("VMI of a set", VMIS, 3000),
        ("VMI of a VM", VMIS, 3000),
        ("VM of a pool", VMS, 2000),
        ("ControllerRevision of a set", CONTROLLER_REVISIONS, 2000),
    ],
)
def test_a_cached_object_needs_at_most_so_many_bytes(name: str, resource: Resource[Any], most: int) -> None:
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
    try:
        before = tracemalloc.get_traced_memory()[0]
        store = filled()
        gc.collect()
        kept = (tracemalloc.get_traced_memory()[0] - before) / COUNT
    finally:
        tracemalloc.stop()
    assert len(store) == len(interned) == COUNT
    assert 0 < kept < most
